from __future__ import annotations

from pathlib import Path

import httpx
import numpy as np
import pytest

from model.bundle import Bundle
from service.settings import Settings
from tests.pictures import as_png
from training.answers import is_wrong
from training.data.datasets import DATASETS, Examples, load
from training.data.pairs import TEST_DIGESTS, published_pairs

BATCH = 100


@pytest.fixture(scope="session")
def test_digits(data_dir: Path) -> Examples:
    """The published test split."""
    return load(DATASETS["mnist"], "test", data_dir, fetch=False)


@pytest.mark.release
@pytest.mark.data
def test_ten_thousand_pictures_get_the_recorded_score(
    single_bundle_name: str, service: httpx.Client, data_dir: Path
) -> None:
    """The test split over HTTP gives exactly the errors that `evaluate` recorded."""
    manifest = Bundle.open(Settings().bundles / single_bundle_name).manifest
    tested = load(DATASETS[manifest.dataset], "test", data_dir, fetch=False)
    wrong = 0
    for start in range(0, len(tested.labels), BATCH):
        pictures = tested.images[start : start + BATCH]
        answer = service.post(
            "/classify",
            params={"model": single_bundle_name},
            files=[("file", ("picture.png", as_png(one), "image/png")) for one in pictures],
        )
        labels = tested.labels[start : start + BATCH]
        predictions = [one["label"] for one in answer.json()["predictions"]]
        wrong += sum(map(int.__ne__, predictions, map(int, labels)))
    assert manifest.metrics["test_errors"] == wrong


@pytest.mark.release
@pytest.mark.data
@pytest.mark.parametrize("shift_px", TEST_DIGESTS)
def test_ten_thousand_pairs_get_the_recorded_score(
    shift_px: int, pair_bundle_name: str, service: httpx.Client, test_digits: Examples
) -> None:
    """The published test pairs over HTTP give exactly the errors that `evaluate` recorded."""
    pairs = published_pairs(test_digits, size=36, shift_px=shift_px)
    wrong = 0
    for start in range(0, len(pairs.labels), BATCH):
        answer = service.post(
            "/classify",
            params={"model": pair_bundle_name},
            files=[
                ("file", ("pair.png", as_png(one), "image/png"))
                for one in pairs.images[start : start + BATCH]
            ],
        )
        lengths = np.array([one["lengths"] for one in answer.json()["predictions"]], np.float32)
        wrong += int(is_wrong(lengths, pairs.labels[start : start + BATCH]).sum())
    metrics = Bundle.open(Settings().bundles / pair_bundle_name).manifest.metrics
    assert metrics["shifts"][f"{shift_px} px"]["drawn_errors"] == wrong
