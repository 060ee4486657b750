"""Pictures of one's own in a bundle."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from model.bundle.samples import INDEX, read_samples
from training.data.datasets import Examples
from training.samples import write_samples


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([0] * 8 + [1] * 8, [0] * 5 + [1] * 5), ([0, 1, 2] * 5, [0] * 4 + [1] * 3 + [2] * 3)],
)
def test_samples_are_the_images_that_the_network_sees(
    tmp_path: Path, labels: list[int], expected: list[int]
) -> None:
    """Pixel by pixel, up to ten, the classes in turn; names of files are of small letters."""
    shape = (len(labels), 3, 6, 8)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    names, folder = ("Übergröße Nº 2", "ring", "star"), tmp_path / "samples"
    examples = Examples(images, np.array(labels))
    write_samples(examples, names, folder, licence="yours", source="noise")
    index = json.loads((folder / INDEX).read_text())
    assert expected == [one["label"] for one in index]
    assert index == [
        {name: getattr(one, name) for name in index[0]} for one in read_samples(folder, 3)
    ]
    assert ("00-ubergrosse-no-2.png", "yours") == (index[0]["file"], index[0]["licence"])
    shown = np.asarray(Image.open(folder / index[0]["file"]))
    np.testing.assert_array_equal(images[labels.index(0)].transpose(1, 2, 0), shown)
