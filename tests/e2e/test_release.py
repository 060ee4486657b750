from __future__ import annotations

import io
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from model.bundle import Bundle
from service.settings import Settings
from training.data.datasets import DATASETS, Examples, load
from training.data.pairs import TEST_DIGESTS, published_pairs
from training.evaluation.answers import is_wrong

BATCH = 100


@pytest.fixture(scope="session")
def test_digits(data_dir: Path) -> Examples:
    """The published test split."""
    return load(DATASETS["mnist"], "test", data_dir, fetch=False)


def encode_png(pixels: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.mark.release
@pytest.mark.data
def test_ten_thousand_pictures_get_the_recorded_score(
    bundle_name: str, service: httpx.Client, test_digits: Examples
) -> None:
    """The test split over HTTP gives exactly the errors that `evaluate` recorded."""
    wrong = 0
    for start in range(0, len(test_digits.labels), BATCH):
        pictures = test_digits.images[start : start + BATCH]
        answer = service.post(
            "/classify",
            params={"model": bundle_name},
            files=[("file", ("digit.png", encode_png(one), "image/png")) for one in pictures],
        )
        labels = test_digits.labels[start : start + BATCH]
        predictions = [one["label"] for one in answer.json()["predictions"]]
        wrong += sum(map(int.__ne__, predictions, map(int, labels)))
    recorded = Bundle.open(Settings().bundles / bundle_name).manifest.metrics["test_errors"]
    assert recorded == wrong


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
                ("file", ("pair.png", encode_png(one), "image/png"))
                for one in pairs.images[start : start + BATCH]
            ],
        )
        lengths = np.array([one["lengths"] for one in answer.json()["predictions"]], np.float32)
        wrong += int(is_wrong(lengths, pairs.labels[start : start + BATCH]).sum())
    metrics = Bundle.open(Settings().bundles / pair_bundle_name).manifest.metrics
    assert metrics["shifts"][f"{shift_px} px"]["errors"] == wrong
