"""The CNN that Sabour et al. (2017) compare with."""

from __future__ import annotations

from dataclasses import replace

import torch

from model.capsnet.baseline import BaselineCnn, BaselineConfig
from tests.model.capsnet.networks import SMALL, count_encoder, noise


def test_it_has_the_paper_s_size() -> None:
    """35.4 million parameters: 256, 256 and 128 channels, 328 and 192 hidden units."""
    count = count_encoder(BaselineConfig())
    assert 35_445_522 == count
    assert 35.4 == round(count / 1e6, 1)


def test_several_classes_have_a_probability_each() -> None:
    """Two digits may both be sure; probabilities are those of the logits, one by one."""
    network = BaselineCnn(replace(SMALL["baseline"], multi_label=True)).eval()  # type: ignore[arg-type,call-arg]
    with torch.no_grad():
        network.classes.weight.zero_()
        assert network.classes.bias is not None
        network.classes.bias.copy_(torch.tensor([9.0, 9.0, 0.0, -9.0, -9.0]))
    presence = network(noise(network.config, 1)).presence[0]
    torch.testing.assert_close(presence, torch.tensor([9.0, 9.0, 0.0, -9.0, -9.0]).sigmoid())
