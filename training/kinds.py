"""Draw images of other kinds than those that a network learnt, and change images that it knows.

Coverage is promised for images like those of the calibration. Others show how it degrades.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage

from model.bundle import Manifest
from model.preprocess import Floats, prepare, scale
from training.data.datasets import DATASETS, NOVELTY_DATASETS, Examples, load
from training.data.source import DatasetError, DataSplit
from training.random_sample import draw_rows, objects_of, take

CHANGED, COUNT = 2000, 1000
"""The number of images that are turned or made noisy, and that of each other kind."""
TURN_DEG, NOISE = 30, 0.2
"""The angle, and the standard deviation of the noise of each pixel, which are in [0, 1]."""
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
"""All letters but I and O, which look like the digits 1 and 0."""
_CANVAS, _FONT, _LETTER_TURN_DEG = 96, 64, 15
_SEED = 13


class Kind(NamedTuple):
    """Images (N, C, H, W) in [0, 1] with labels (N,), or without, where they show no class."""

    images: Floats
    labels: NDArray[np.int64] | None = None


def draw_changed(manifest: Manifest, examples: Examples) -> dict[str, Kind]:
    """Up to CHANGED of the examples, drawn at random: turned, and with noise."""
    objects = objects_of(manifest.dataset, len(examples.labels))
    few = take(examples, draw_rows(examples.labels, CHANGED, seed=_SEED, objects=objects))
    images = scale(few.images)
    noise = np.random.default_rng(_SEED).normal(0, NOISE, images.shape).astype(np.float32)
    return {
        f"turned by {TURN_DEG}°": Kind(turn(images, TURN_DEG, manifest), few.labels),
        f"with noise of {NOISE}": Kind((images + noise).clip(0, 1), few.labels),
    }


def turn(images: Floats, degrees: float, manifest: Manifest) -> Floats:
    """Turn images around their middle; photographs are mirrored at the edge, others are black."""
    mode = "reflect" if manifest.preprocess == "crop" else "constant"
    turned = ndimage.rotate(images, degrees, axes=(3, 2), reshape=False, order=1, mode=mode)
    return np.asarray(turned.clip(0, 1), np.float32)


def draw_others(manifest: Manifest, data_dir: Path, *, seed: int = 0) -> dict[str, Kind]:
    """Draw up to COUNT images of each kind that the network was not trained on.

    - noise: every pixel uniform in [0, 1];
    - blanks: one shade each, from black to half;
    - letters: capitals in Pillow's font, rotated a little, prepared as the service does it;
    - images of every other data set of the same shape whose files are in `data_dir`.
    """
    rng, shape = np.random.default_rng(seed), manifest.image_shape
    channels = (COUNT, shape[0], 1, 1)
    kinds: dict[str, Floats] = {
        "noise": rng.random((COUNT, *shape), np.float32),
        "blanks": np.broadcast_to(rng.random(channels, np.float32) / 2, (COUNT, *shape)),
        "letters": np.stack([_letter(rng, manifest) for _ in range(COUNT)]),
    }
    for dataset in (*DATASETS.values(), *NOVELTY_DATASETS.values()):
        if dataset.name != manifest.dataset and dataset.image_shape == shape:
            with suppress(DatasetError):  # its files are not there
                split: DataSplit = "train" if dataset.name in DATASETS else "test"
                others = load(dataset, split, data_dir, fetch=False).images
                chosen = rng.choice(len(others), min(COUNT, len(others)), replace=False)
                kinds[f"{dataset.kind} ({dataset.name})"] = scale(others[chosen])
    return {kind: Kind(images) for kind, images in kinds.items()}


def _letter(rng: np.random.Generator, manifest: Manifest) -> Floats:
    """A letter in Pillow's font, white on black, of some weight and turn, as (C, H, W)."""
    letter, weight = LETTERS[rng.integers(len(LETTERS))], int(rng.integers(0, 4))
    picture, middle = Image.new("L", (_CANVAS, _CANVAS)), (_CANVAS / 2, _CANVAS / 2)
    font = ImageFont.load_default(_FONT)
    ImageDraw.Draw(picture).text(middle, letter, 255, font, anchor="mm", stroke_width=weight)
    degrees = rng.uniform(-_LETTER_TURN_DEG, _LETTER_TURN_DEG)
    turned = picture.rotate(degrees, Image.Resampling.BICUBIC)
    return prepare(turned, manifest.image_shape, rule=manifest.preprocess).image
