from __future__ import annotations

import httpx
import numpy as np
import pytest

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
