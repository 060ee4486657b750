from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from PIL import Image

from tests.pictures import as_png
from tests.service.views.answers import answer_of
from training.data.datasets import Examples
from training.data.pairs import fixed_pairs

Json = dict[str, Any]


def pixels(data_url: str) -> NDArray[np.uint8]:
    """A picture of an answer."""
    content = base64.b64decode(data_url.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(content)))


def segment(client: TestClient, image: NDArray[np.uint8], **query: Any) -> Json:
    """The answer to a picture."""
    return answer_of("/segment", client, as_png(image), **query)


@pytest.fixture(scope="module")
def pairs(strokes: Examples) -> Examples:
    """Pairs of crossing strokes."""
    return fixed_pairs(strokes, 20, size=36, shift_px=2, seed=5)


def test_both_strokes_are_found_and_told_apart(client: TestClient, pairs: Examples) -> None:
    """Labels are right, and each mask covers its own stroke rather than the other one."""
    assert pairs.object_images is not None
    for image, layers, labels in zip(pairs.images, pairs.object_images, pairs.labels, strict=True):
        answer = segment(client, image)
        assert set(labels.tolist()) == {one["label"] for one in answer["segments"]}
        for one in answer["segments"]:
            mask = pixels(one["mask"]) == 255
            own = layers[labels.tolist().index(one["label"])] > 0
            assert 0.6 < (mask & own).sum() / (mask | own).sum()


def test_two_samples_are_laid_over_one_another(client: TestClient, digits: list[bytes]) -> None:
    """Sent or named, the same digits give the same picture, which fits the network untouched."""
    place = {"dx": 3, "dy": -2}
    named = client.get("/overlay", params={"first": 3, "second": 5, **place})
    files = [("file", digits[3]), ("file", digits[5])]
    sent = client.post("/overlay", params=place, files=files)
    assert [200, 200] == [named.status_code, sent.status_code]
    assert named.content == sent.content
    elsewhere = client.get("/overlay", params={"first": 3, "second": 5, "dx": -3})
    assert named.content != elsewhere.content
    assert (36, 36) == Image.open(io.BytesIO(named.content)).size
    answer = client.post("/segment", files={"file": named.content})
    assert "none" == answer.json()["fit"]["fit"]


@pytest.mark.parametrize(
    ("count", "broken", "status"), [(1, False, 422), (3, False, 413), (1, True, 415)]
)
def test_an_overlay_takes_two_pictures(
    client: TestClient, digits: list[bytes], count: int, status: int, *, broken: bool
) -> None:
    """One is too few, and three are too many; both must be pictures."""
    pictures = [*digits[:count], *([b"not a picture"] if broken else [])]
    answer = client.post("/overlay", files=[("file", picture) for picture in pictures])
    assert status == answer.status_code
