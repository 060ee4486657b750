from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from model.bundle import Bundle
from service.settings import Settings
from tests.pictures import as_png
from training.data.datasets import DATASETS, load, split_last

PICTURES = 50


@pytest.mark.data
def test_other_things_are_told_apart(
    other_bundle_name: str, service: httpx.Client, data_dir: Path
) -> None:
    """The class names are those of the data set, and most training images get the right one."""
    dataset = DATASETS[Bundle.open(Settings().bundles / other_bundle_name).manifest.dataset]
    _, known = split_last(load(dataset, "train", data_dir, fetch=False), 5000)
    files = [("file", ("it.png", as_png(one), "image/png")) for one in known.images[:PICTURES]]
    answer = service.post("/classify", params={"model": other_bundle_name}, files=files)
    names = [one["class_name"] for one in answer.json()["predictions"]]
    right = [dataset.class_names[label] for label in known.labels[:PICTURES]]
    assert sum(map(str.__eq__, names, right)) >= 0.8 * PICTURES
