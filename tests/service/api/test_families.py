from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from model.bundle import Bundle
from model.preprocess import scale
from model.runtime import Runtime
from service.settings import Settings
from tests.service.views.answers import answer_of, drawing_of
from tests.serving import serve

CAPSULES = ("dynamic", "attention", "shared", "matrix")
PNG = {"accept": "image/png"}


@pytest.fixture(scope="module")
def families(settings: Settings, family_bundles: Path) -> Iterator[TestClient]:
    """A service with an untrained network of each family."""
    with serve(settings, bundles=family_bundles, default_model="tiny-dynamic") as client:
        yield client


def ask(client: TestClient, path: str, family: str, picture: bytes, **query: Any) -> dict[str, Any]:
    return answer_of(path, client, picture, model=f"tiny-{family}", **query)


@pytest.mark.parametrize(
    ("family", "presence", "offers", "dim"),
    [
        ("dynamic", "length", ["decode", "trace", "neighbours"], 16),
        *((family, "length", ["decode", "trace"], 16) for family in CAPSULES[1:3]),
        ("matrix", "activation", ["decode", "trace"], 16),
        ("baseline", "probability", [], 0),
    ],
)
def test_models_say_what_they_are_and_offer(
    family: str, presence: str, offers: list[str], dim: int, families: TestClient
) -> None:
    """Family, kind of presence, offers and the size of a pose."""
    models = {one["name"]: one for one in families.get("/models").json()["models"]}
    found = models[f"tiny-{family}"]
    assert (family, presence, offers, dim) == (
        found["family"],
        found["presence"],
        found["offers"],
        found["class_dim"],
    )


@pytest.mark.parametrize("family", [*CAPSULES, "baseline"])
def test_every_family_classifies(
    family: str, families: TestClient, family_bundles: Path, digits: list[bytes]
) -> None:
    """Lengths are the network's presence, and the version is that of its weights."""
    bundle = Bundle.open(family_bundles / f"tiny-{family}")
    image = scale(np.asarray(Image.open(io.BytesIO(digits[7])))[None, None])
    (presence,) = Runtime(bundle, device="cpu", threads=1).encode(image).presence
    answer = ask(families, "/classify", family, digits[7])
    (prediction,) = answer["predictions"]
    assert presence.tolist() == pytest.approx(prediction["lengths"], abs=1e-5)
    assert (f"tiny-{family}", bundle.manifest.version) == (answer["model"], answer["version"])


def test_a_network_without_poses_can_be_moved(families: TestClient, digits: list[bytes]) -> None:
    """/equivariance tells lengths alone, and draws them."""
    answer = ask(families, "/equivariance", "baseline", digits[7])
    assert (13, None, None) == (len(answer["lengths"]), answer["angles_deg"], answer["poses"])
    assert 3 * [None] == [answer[name] for name in ("points", "explained", "straightness")]
    assert 900 == drawing_of("/equivariance", families, digits[7], model="tiny-baseline").width


def test_maps_of_hidden_layers_are_detail(families: TestClient, digits: list[bytes]) -> None:
    """Without it their means and assignments stay; other families have no hidden layers."""
    for layer in ask(families, "/routing", "matrix", digits[7], detail=False)["layers"]:
        for iteration in layer["iterations"]:
            assert {"activations", "assignments"} == iteration.keys()
    assert [] == ask(families, "/routing", "attention", digits[7])["layers"]


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


@pytest.mark.parametrize(
    ("family", "count", "query"),
    [("shared", 5, {}), ("matrix", 2, {}), ("dynamic", 2, {})],
)
def test_pictures_of_other_sizes_are_refused(
    family: str, count: int, query: dict[str, Any], families: TestClient, digits: list[bytes]
) -> None:
    """Those of over four times as many pixels, and all of them by other families."""
    picture = side_by_side(*digits[:count])
    params = {"model": f"tiny-{family}", "fit": "none", **query}
    answer = families.post("/classify", params=params, files={"file": picture})
    expected = (422, "fit", f"not {28 * count}x28")
    actual = answer.json()
    assert expected[:2] == (answer.status_code, actual["parameter"])
    assert expected[2] in actual["detail"]


def test_models_of_any_size_say_so(families: TestClient) -> None:
    """Shared-weight capsules alone."""
    models = families.get("/models").json()["models"]
    assert ["tiny-shared"] == [one["name"] for one in models if one["any_size"]]
