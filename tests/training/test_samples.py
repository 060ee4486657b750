"""Pictures of one's own in a bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from model.bundle.samples import INDEX, read_samples
from training.data.datasets import Examples
from training.samples import write_samples


def write(folder: Path, labels: list[int], names: tuple[str, ...], channels: int) -> list[Any]:
    """Samples of noise with these labels, and their index."""
    shape = (len(labels), channels, 6, 8)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    examples = Examples(images, np.array(labels))
    write_samples(examples, names, folder / "samples", licence="yours", source="noise")
    index = json.loads((folder / "samples" / INDEX).read_text())
    read = read_samples(folder / "samples", len(names))
    assert index == [{name: getattr(one, name) for name in index[0]} for one in read]
    for row, one in zip(_rows(labels, index), index, strict=True):
        shown = np.asarray(Image.open(folder / "samples" / one["file"]))
        np.testing.assert_array_equal(images[row].transpose(1, 2, 0).squeeze(), shown)
    assert len(index) + 1 == len(list((folder / "samples").iterdir()))
    return index


def _rows(labels: list[int], index: list[Any]) -> list[int]:
    """Which images they are: the first ones of each label."""
    left = {label: [row for row, one in enumerate(labels) if one == label] for label in set(labels)}
    return [left[one["label"]].pop(0) for one in index]


@pytest.mark.parametrize("channels", [1, 3])
def test_samples_are_the_images_that_the_network_sees(tmp_path: Path, channels: int) -> None:
    """Pixel by pixel, with class, licence and source; names of files are of small letters."""
    index = write(tmp_path, [1, 0], ("Übergröße Nº 2", "ring"), channels)
    assert ["00-ubergrosse-no-2.png", "01-ring.png"] == [one["file"] for one in index]
    assert {
        "file": "01-ring.png",
        "label": 1,
        "class_name": "ring",
        "licence": "yours",
        "source": "noise",
    } == index[1]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0] * 8 + [1] * 8, [0] * 5 + [1] * 5),
        ([0] + [1] * 20, [0] + [1] * 9),
        ([0, 1, 2] * 5, [0] * 4 + [1] * 3 + [2] * 3),
        ([*range(12), *range(12)], list(range(10))),
        ([2, 2], [2, 2]),
    ],
)
def test_classes_share_ten_places(tmp_path: Path, labels: list[int], expected: list[int]) -> None:
    """One of each, then a second one, while there is room."""
    index = write(tmp_path, labels, tuple("abcdefghijkl"), 1)
    assert expected == [one["label"] for one in index]
