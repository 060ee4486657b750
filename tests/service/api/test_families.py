from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from model.bundle import Bundle
from model.preprocess import scale
from model.runtime import Runtime
from service.settings import Settings
from tests.serving import serve


@pytest.fixture(scope="module")
def families(settings: Settings, family_bundles: Path) -> Iterator[TestClient]:
    """A service with an untrained network of each family."""
    with serve(settings, bundles=family_bundles, default_model="tiny-dynamic") as client:
        yield client


def side_by_side(*digits: bytes) -> bytes:
    """Digits in one picture, from left to right."""
    pixels = [np.asarray(Image.open(io.BytesIO(digit)).convert("L")) for digit in digits]
    file = io.BytesIO()
    Image.fromarray(np.concatenate(pixels, axis=1)).save(file, "PNG")
    return file.getvalue()


def test_shared_weights_take_larger_pictures(
    families: TestClient, family_bundles: Path, digits: list[bytes]
) -> None:
    """Among pictures of the usual size, a wider one is encoded as it is."""
    pictures = [digits[3], side_by_side(digits[3], digits[8]), digits[8]]
    answer = families.post(
        "/classify",
        params={"model": "tiny-shared", "fit": "none"},
        files=[("file", picture) for picture in pictures],
    ).json()
    runtime = Runtime(Bundle.open(family_bundles / "tiny-shared"), device="cpu")
    for picture, prediction in zip(pictures, answer["predictions"], strict=True):
        image = scale(np.asarray(Image.open(io.BytesIO(picture)))[None, None])
        expected = runtime.encode(image).presence[0].tolist()
        assert expected == pytest.approx(prediction["lengths"], abs=1e-5)
