"""Pictures of strokes for the tests of preprocessing."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from model.preprocess import Floats

DIGIT, PAIR = (1, 28, 28), (1, 36, 36)
"""Shapes of the images that networks of digits take."""


def draw_seven(
    size: int = 200, *, ink: Any = 0, background: Any = 255, mode: str = "L"
) -> Image.Image:
    """A seven in the upper left quarter of a square picture."""
    picture = Image.new(mode, (size, size), background)
    path = [(0.15 * size, 0.15 * size), (0.4 * size, 0.15 * size), (0.25 * size, 0.6 * size)]
    ImageDraw.Draw(picture).line(path, ink, width=size // 20, joint="curve")
    return picture


def draw_two(size: int = 300) -> Image.Image:
    """Two crossing strokes, off-centre: 120 pixels wide and 150 high."""
    picture = Image.new("L", (size, size), 255)
    pen = ImageDraw.Draw(picture)
    pen.rectangle((40, 100, 159, 119), fill=0)
    pen.rectangle((60, 20, 79, 169), fill=0)
    return picture


def centre_of_mass(image: Floats) -> tuple[float, float]:
    rows, columns = np.indices(image.shape)
    return (float((rows * image).sum() / image.sum()), float((columns * image).sum() / image.sum()))
