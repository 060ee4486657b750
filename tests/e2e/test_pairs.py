from __future__ import annotations

import io

import httpx
import numpy as np
import pytest
from PIL import Image

from model.bundle import Bundle
from service.settings import Settings
from tests.pictures import as_png
from training.data.datasets import Examples
from training.data.pairs import fixed_pairs

COUNT = 200


def recorded_error_percent(name: str) -> float:
    """The share of wrong pairs that `evaluate` found."""
    metrics = Bundle.open(Settings().bundles / name).manifest.metrics
    return float(metrics["test_error_percent"])


@pytest.mark.data
def test_pairs_of_training_digits_are_taken_apart(
    pair_bundle_name: str, service: httpx.Client, validation_digits: Examples
) -> None:
    """As often as the card promises, within three standard deviations of 200 pairs."""
    pairs = fixed_pairs(validation_digits, COUNT, size=36, shift_px=4, seed=99)
    wrong = 0
    for image, labels in zip(pairs.images, pairs.labels, strict=True):
        answer = service.post(
            "/segment", params={"model": pair_bundle_name}, files={"file": as_png(image)}
        ).json()
        wrong += {one["label"] for one in answer["segments"]} != set(labels.tolist())
    expected = recorded_error_percent(pair_bundle_name) / 100
    assert wrong / COUNT <= expected + 3 * np.sqrt(expected * (1 - expected) / COUNT)


def test_two_samples_are_shown_in_colour(pair_bundle_name: str, service: httpx.Client) -> None:
    """From two samples to the coloured picture of the documentation, by two requests."""
    pair = service.get("/overlay", params={"first": 3, "second": 5, "dx": 4, "dy": 2})
    answer = service.post(
        "/segment",
        params={"model": pair_bundle_name, "scale": 8},
        headers={"Accept": "image/png"},
        files={"file": pair.content},
    )
    picture = np.asarray(Image.open(io.BytesIO(answer.content)), float)
    assert (288, 576, 3) == picture.shape
    assert np.ptp(picture[:, 288:], axis=2).max() > 100
