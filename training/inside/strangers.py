"""Pictures of kinds that a network was not trained on, and that nothing here is tuned on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from model.preprocess import WHITE, Floats, fit_strokes, scale
from training.data.datasets import DATASETS, load

COUNT = 1000
"""Of each kind."""
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
"""Without I and O, which are the digits 1 and 0 to the eye."""
_CANVAS, _FONT, _TURN_DEG = 96, 64, 15


def draw_strangers(
    size: int, data_dir: Path, *, known: str = "mnist", seed: int = 0
) -> dict[str, Floats]:
    """COUNT pictures (N, 1, size, size) of each kind, seeded.

    - noise: every pixel uniform in [0, 1];
    - blanks: one grey level, from black to half;
    - letters: capitals drawn by Pillow's font, turned a little, laid out like digits;
    - clothes or digits: training images of the data set that is not `known`, in networks of their
      size.
    """
    rng = np.random.default_rng(seed)
    shape = (COUNT, 1, size, size)
    kinds: dict[str, Floats] = {
        "noise": rng.random(shape, np.float32),
        "blanks": np.broadcast_to(rng.random((COUNT, 1, 1, 1), np.float32) / 2, shape),
        "letters": np.stack([_letter(rng, size) for _ in range(COUNT)]),
    }
    for dataset in DATASETS.values():
        if dataset.name == known:
            continue
        others = load(dataset, "train", data_dir).images
        if others.shape[1:] == (size, size):
            kinds[dataset.kind] = scale(others[rng.choice(len(others), COUNT, replace=False)])
    return kinds


def _letter(rng: np.random.Generator, size: int) -> Floats:
    """(1, size, size)."""
    letter = LETTERS[rng.integers(len(LETTERS))]
    picture = Image.new("L", (_CANVAS, _CANVAS))
    font = ImageFont.load_default(_FONT)
    weight = int(rng.integers(0, 4))
    middle = (_CANVAS / 2, _CANVAS / 2)
    ImageDraw.Draw(picture).text(middle, letter, 255, font, anchor="mm", stroke_width=weight)
    turned = picture.rotate(rng.uniform(-_TURN_DEG, _TURN_DEG), Image.Resampling.BICUBIC)
    grey = np.asarray(turned, np.float32) / np.float32(WHITE)
    return fit_strokes(grey, size, "light-on-dark").image
