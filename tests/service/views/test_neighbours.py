from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from PIL import Image

from model.bundle import Bundle, write_manifest
from model.canvas import draw_sheet
from model.preprocess import scale
from model.runtime import Runtime
from service.settings import Settings
from tests.neighbours import add_gallery
from tests.service.views.answers import answer_of, drawing_of
from tests.serving import serve
from training.analysis.prototypes import make_gallery

Pixels = Callable[[str], NDArray[np.int64]]
LABEL = 3
"""The class whose training images the bundle has."""


@pytest.fixture(scope="module")
def images(digits: list[bytes]) -> NDArray[np.uint8]:
    """(10, 1, 28, 28): the digits, as training images of one class."""
    return np.stack([np.asarray(Image.open(io.BytesIO(digit)), np.uint8)[None] for digit in digits])


@pytest.fixture(scope="module")
def near(
    bundle_path: Path,
    images: NDArray[np.uint8],
    runtime: Runtime,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TestClient]:
    """A service with `mnist`, whose bundle has ten images, and `drawn`, with their poses alone."""
    folder = tmp_path_factory.mktemp("near")
    poses = runtime.encode(scale(images)).poses[:, LABEL].astype(np.float16)
    white = np.eye(16, dtype=np.float16)[None].repeat(10, 0)
    labels, places = np.full(10, LABEL), np.arange(10)
    for name, sheet in (("mnist", draw_sheet(images)), ("drawn", b"")):
        shutil.copytree(bundle_path, folder / name)
        write_manifest(folder / name, replace(Bundle.open(folder / name).manifest, name=name))
        add_gallery(
            folder / name,
            make_gallery(poses, labels, places, white, np.frombuffer(sheet, np.uint8)),
        )
    settings = Settings(bundles=folder, default_model="mnist", device="cpu", threads=1)
    with serve(settings) as client:
        yield client


ask = partial(answer_of, "/neighbours")


def test_a_training_image_finds_itself(
    near: TestClient, digits: list[bytes], images: NDArray[np.uint8], pixels: Pixels
) -> None:
    """First, at hardly any distance, and it is shown; the others are further away."""
    for place in (0, 6):
        found = ask(near, digits[place], target=LABEL, count=10)
        distances = [one["distance"] for one in found["neighbours"]]
        assert sorted(distances) == distances
        assert distances[0] < 0.01 < distances[1]
        shown = pixels(found["neighbours"][0]["image"])
        assert 20 > np.abs(shown - images[place, 0]).mean()
        assert 10 == len(distances)


def test_prototypes_stand_for_all(near: TestClient, digits: list[bytes]) -> None:
    """Four of them, those of most images first; the answer names the source of the images."""
    found = ask(near, digits[1], target=LABEL)
    shares = [one["share"] for one in found["prototypes"]]
    assert (4, 1) == (len(shares), pytest.approx(sum(shares)))
    assert sorted(shares, reverse=True) == shares
    assert 6 == len(found["neighbours"])
    assert ("10 images", "CC0", "nobody", False) == tuple(
        found[name] for name in ("images", "licence", "source", "drawn")
    )
    assert found["typical_distance"] > 0


def test_poses_without_images_are_drawn(
    near: TestClient,
    digits: list[bytes],
    runtime: Runtime,
    images: NDArray[np.uint8],
    pixels: Pixels,
) -> None:
    """By the decoder, and the answer says so."""
    found = ask(near, digits[2], target=LABEL, model="drawn", count=1)
    assert found["drawn"] is True
    pose = runtime.encode(scale(images[2:3])).poses[:, LABEL]
    expected = runtime.decode(pose, np.array([LABEL]))[0, 0]
    assert 3 > np.abs(pixels(found["neighbours"][0]["image"]) - 255 * expected).max()


@pytest.mark.parametrize(
    ("service", "query", "detail"),
    [
        ("near", {"target": 5}, "no training images of '5'"),
        ("client", {"model": "strokes"}, "does not offer neighbours"),
    ],
    ids=["no images of a class", "no images at all"],
)
def test_what_a_bundle_does_not_have_is_told(
    service: str,
    query: dict[str, Any],
    detail: str,
    request: pytest.FixtureRequest,
    digits: list[bytes],
) -> None:
    """409, as for other things that a network cannot do."""
    client = request.getfixturevalue(service)
    answer = client.post("/neighbours", params=query, files={"file": digits[5]})
    assert (409, "urn:capsnet:problem:not-offered") == (answer.status_code, answer.json()["type"])
    assert detail in answer.json()["detail"]


def test_models_say_who_offers_them(client: TestClient) -> None:
    """`GET /models` lists it next to decoding."""
    offers = {one["name"]: one["offers"] for one in client.get("/models").json()["models"]}
    assert "neighbours" in offers["mnist"]
    assert "neighbours" not in offers["strokes"]


@pytest.mark.parametrize("query", [{}, {"count": 20}, {"count": 1}, {"model": "drawn"}])
def test_neighbours_are_drawn(query: dict[str, Any], near: TestClient, digits: list[bytes]) -> None:
    """Few or many, and those without images."""
    drawing_of("/neighbours", near, digits[7], target=LABEL, **query)
