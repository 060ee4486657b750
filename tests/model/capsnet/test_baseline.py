"""The CNN that Sabour et al. (2017) compare with."""

from __future__ import annotations

from model.capsnet.baseline import BaselineConfig
from tests.model.capsnet.networks import count_encoder


def test_it_has_the_paper_s_size() -> None:
    """35.4 million parameters: 256, 256 and 128 channels, 328 and 192 hidden units."""
    count = count_encoder(BaselineConfig())
    assert 35_445_522 == count
    assert 35.4 == round(count / 1e6, 1)
