from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from model.preprocess import prepare


@pytest.mark.parametrize("grey", [0, 128, 255])
@pytest.mark.parametrize("size", [(1, 1), (3, 90), (200, 200)])
def test_blank_picture_gives_an_empty_image(grey: int, size: tuple[int, int]) -> None:
    """Where there are no strokes, nothing is invented."""
    prepared = prepare(Image.new("L", size, grey), 28)
    assert prepared.box is None
    assert prepared.image.max() == 0


def test_noise_alone_gives_an_empty_image() -> None:
    """Sensor noise on blank paper is not taken for strokes."""
    noise = np.random.default_rng(0).normal(200, 6, (300, 300)).clip(0, 255).astype(np.uint8)
    assert prepare(Image.fromarray(noise), 28).box is None
