from __future__ import annotations

import base64
import io

import httpx
import numpy as np
import pytest
from PIL import Image

from service.documentation import SAMPLES


@pytest.mark.parametrize("digit", range(10))
def test_sample_digits_are_answered_right(
    digit: int, bundle_name: str, service: httpx.Client
) -> None:
    """Every shipped bundle knows the ten digits that the documentation shows."""
    picture = (SAMPLES / f"{digit}.png").read_bytes()
    answer = service.post("/classify", params={"model": bundle_name}, files={"file": picture})
    assert digit == answer.json()["predictions"][0]["label"]


@pytest.mark.parametrize("digit", range(10))
def test_reconstruction_resembles_the_sample(
    digit: int, bundle_name: str, service: httpx.Client
) -> None:
    """What a network draws is nearer to its input than to any other digit, or to all but one.

    The latter where the decoder had no part in making the poses.
    """
    seen = {label: np.asarray(Image.open(SAMPLES / f"{label}.png"), float) for label in range(10)}
    answer = service.post(
        "/reconstruct",
        params={"model": bundle_name},
        files={"file": (SAMPLES / f"{digit}.png").read_bytes()},
    ).json()
    png = base64.b64decode(answer["reconstruction"].partition(",")[2])
    drawn = np.asarray(Image.open(io.BytesIO(png)), float)
    nearest = sorted(seen, key=lambda label: float(np.square(seen[label] - drawn).mean()))
    assert digit in nearest[: 2 if bundle_name == "mnist-matrix" else 1]


def test_perturbing_changes_the_picture(bundle_name: str, service: httpx.Client) -> None:
    """Some pose dimension, moved by the paper's range, moves pixels visibly."""
    picture = (SAMPLES / "4.png").read_bytes()
    largest = 0.0
    for dim in range(16):
        pictures = [
            service.post(
                "/perturb",
                params={"model": bundle_name, "dim": dim, "delta": delta},
                headers={"Accept": "image/png"},
                files={"file": picture},
            ).content
            for delta in (-0.25, 0.25)
        ]
        low, high = (np.asarray(Image.open(io.BytesIO(png)), float) for png in pictures)
        largest = max(largest, float(np.abs(high - low).max()))
    assert largest > 64
