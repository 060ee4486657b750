from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch

from training.baseline import Baseline, BaselineConfig
from training.recipes import PRESETS

SMALL = BaselineConfig(channels=(4, 2), kernels=(5, 3), hidden=(6, 5))


@pytest.mark.parametrize(
    ("preset", "weights"), [("mnist-baseline", 35_445_522), ("multimnist-baseline", 24_563_978)]
)
def test_the_baselines_have_as_many_weights_as_the_papers(preset: str, weights: int) -> None:
    """35.4 and 24.56 million, which tells that zeros surround the images."""
    recipe = PRESETS[preset]
    assert recipe.baseline is not None
    with torch.device("meta"):
        network = Baseline(recipe.baseline, image_size=recipe.network.image_size, num_classes=10)
    assert weights == sum(weight.numel() for weight in network.parameters())


@pytest.mark.parametrize("pooling", [True, False])
def test_each_class_has_a_score(pooling: bool) -> None:  # noqa: FBT001  a parameter of the test
    """Any image size will do, with pooling and without."""
    config = BaselineConfig(channels=(4, 2), kernels=(5, 3), pooling=pooling, hidden=(6,))
    network = Baseline(config, image_size=13, num_classes=3)
    assert (7, 3) == network(torch.rand(7, 1, 13, 13)).lengths.shape


def test_left_out_outputs_do_not_count() -> None:
    """With all of them left out, only the biases of the last layer speak."""
    network = Baseline(SMALL, image_size=8, num_classes=3)
    logits = network.logits(torch.rand(2, 1, 8, 8), torch.zeros(2, 5))
    torch.testing.assert_close(network.classes.bias.expand(2, 3), logits)


def test_nothing_is_left_out_of_an_answer() -> None:
    """Asked twice, the network says the same."""
    network = Baseline(SMALL, image_size=8, num_classes=3)
    images = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(network.logits(images, 1.0), network(images).lengths)


def test_sizes_survive_json() -> None:
    """What is read back equals what was written, tuples and all."""
    assert SMALL == BaselineConfig.from_dict(json.loads(json.dumps(asdict(SMALL))))
