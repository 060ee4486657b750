"""A data set of noise with both splits, and bundles whose training says that it was theirs."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from model.bundle import Bundle, write_manifest
from training.data.datasets import DIGITS, Dataset
from training.data.source import Columns, File, Source
from training.provenance import Run

TRAINING, TEST, HELD_OUT = 80, 10, 40
RUN = Run(
    id="r1",
    preset="mnist-compact",
    dataset="toys",
    task="single",
    seed=1,
    steps=10,
    images=640,
    held_out=HELD_OUT,
    seconds=360,
    devices=("CPU",),
)


def _read(content: bytes) -> Columns:
    count = int(content)
    rng = np.random.default_rng(count)
    images = rng.integers(0, 256, (count, 1, 28, 28), np.uint8)
    images *= rng.random(images.shape) < 0.2
    return {"images": images, "labels": np.arange(count) * 2 // count}


def write_toys(data_dir: Path) -> Dataset:
    """Sparse noise in ten classes, of which two occur, the second one in the second half."""
    folder = data_dir / "toys"
    folder.mkdir()
    train, test = File("train", TRAINING), File("test", TEST)
    for file in (train, test):
        (folder / file.name).write_text(str(file.records))
    return Dataset(
        name="toys",
        kind="digits",
        image_shape=(1, 28, 28),
        class_names=DIGITS,
        preprocess="digit",
        held_out_count=HELD_OUT,
        source=Source(files={"train": (train,), "test": (test,)}, read=_read),
    )


def say_training(
    path: Path, target: Path, *, runs: tuple[Run, ...] = (RUN,), **recipe: Any
) -> Bundle:
    """A copy of a bundle that learnt the toys, without training images.

    Args:
        recipe: its fields that are other ones.
    """
    folder = Path(shutil.copytree(path, target))
    manifest = Bundle.open(folder).manifest
    training = {
        "recipe": {**manifest.training["recipe"], "dataset": "toys", **recipe},
        "examples": 640,
        "runs": [asdict(run) for run in runs],
    }
    offers = tuple(offer for offer in manifest.offers if offer != "neighbours")
    write_manifest(folder, replace(manifest, training=training, offers=offers, neighbours=None))
    return Bundle.open(folder)
