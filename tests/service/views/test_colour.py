from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from PIL import Image

from model.bundle import Bundle
from model.preprocess import Floats, prepare
from model.runtime import Runtime
from model.views.equivariance import transform_image

SHAPE = (3, 24, 32)
PNG = {"accept": "image/png"}
Post = Callable[..., Any]


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    """A photograph of 120x60 pixels, with a patch of each colour."""
    picture = Image.new("RGB", (120, 60), (250, 240, 200))
    for place, colour in enumerate([(220, 30, 40), (20, 160, 60), (40, 60, 210)]):
        picture.paste(colour, (30 + 20 * place, 10, 45 + 20 * place, 50))
    return picture


@pytest.fixture(scope="module")
def image(photo: Image.Image) -> Floats:
    """What the network sees of it."""
    return prepare(photo, SHAPE, rule="crop").image


@pytest.fixture(scope="module")
def blocks(colour_bundle_path: Path) -> Runtime:
    return Runtime(Bundle.open(colour_bundle_path), device="cpu", threads=1)


@pytest.fixture
def post(client: TestClient, photo: Image.Image) -> Post:
    """`post(path, headers, **query)` sends the photograph to the colour network."""
    file = io.BytesIO()
    photo.save(file, "PNG")

    def send(path: str, headers: dict[str, str] | None = None, **query: Any) -> Any:
        answer = client.post(
            path,
            params={"model": "blocks", **query},
            files={"file": file.getvalue()},
            headers=headers,
        )
        assert 200 == answer.status_code, answer.text
        return answer

    return send


def pixels(picture: str | bytes) -> NDArray[np.int64]:
    """(C, H, W) of a PNG of three channels, from bytes or a data URL."""
    if isinstance(picture, str):
        picture = base64.b64decode(picture.partition(",")[2])
    opened = Image.open(io.BytesIO(picture))
    assert "RGB" == opened.mode
    return np.asarray(opened, np.int64).transpose(2, 0, 1)


def test_photographs_are_cropped_and_have_no_polarity(post: Post) -> None:
    """The fit says so, and that no strokes were looked for."""
    (prediction,) = post("/classify").json()["predictions"]
    assert {"fit": "crop", "polarity": None, "box": None} == prediction["fit"]


def test_the_network_sees_the_middle_in_colour(post: Post, image: Floats, blocks: Runtime) -> None:
    """Lengths and input are those of the cropped picture."""
    (presence,) = blocks.encode(image[None]).presence
    (prediction,) = post("/classify").json()["predictions"]
    assert presence.tolist() == pytest.approx(prediction["lengths"], abs=1e-5)
    assert np.abs(image * 255 - pixels(post("/reconstruct").json()["input"])).max() <= 0.51


@pytest.mark.parametrize(("fit", "expected"), [("stretch", "stretch"), ("crop", "crop")])
def test_the_fit_can_be_chosen(fit: str, expected: str, post: Post) -> None:
    """The whole picture, or its middle."""
    (prediction,) = post("/classify", fit=fit).json()["predictions"]
    assert expected == prediction["fit"]["fit"]


@pytest.mark.parametrize(("width", "height"), [(116, 148), (115, 400), (400, 115)])
def test_photographs_of_any_size_are_cropped(
    width: int, height: int, client: TestClient, blocks: Runtime
) -> None:
    """Also where the largest rectangle of the network's shape has no whole number of pixels."""
    del blocks
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "JPEG")
    for model in ("blocks", None):
        query = {"fit": "crop", **({"model": model} if model else {})}
        answer = client.post("/classify", params=query, files={"file": file.getvalue()})
        assert "crop" == answer.json()["predictions"][0]["fit"]["fit"]


def test_strokes_are_not_looked_for(client: TestClient, digits: list[bytes]) -> None:
    """422 names the parameter."""
    query = {"model": "blocks", "fit": "digit"}
    answer = client.post("/classify", params=query, files={"file": digits[3]})
    assert (422, "fit") == (answer.status_code, answer.json()["parameter"])


def test_reconstructions_are_in_colour(post: Post, image: Floats, blocks: Runtime) -> None:
    """In JSON and as PNG, and the error is the mean over all channels."""
    presence, poses = blocks.encode(image[None])
    label = int(presence[0].argmax())
    (drawn,) = blocks.decode(poses[:, label], np.array([label]))
    answer = post("/reconstruct").json()
    assert np.abs(drawn * 255 - pixels(answer["reconstruction"])).max() <= 0.51
    assert np.square(drawn - image).mean() == pytest.approx(answer["error"], abs=1e-5)
    small, large = (pixels(post("/reconstruct", PNG, scale=size).content) for size in (1, 3))
    assert pixels(answer["reconstruction"]).tolist() == small.tolist()
    assert np.kron(small, np.ones((1, 3, 3), int)).tolist() == large.tolist()


def test_sweeps_are_in_colour(post: Post) -> None:
    """Each cell has the network's own shape, which need not be a square."""
    answer = post("/sweep", dims=[2], start=-1, stop=1, step=1).json()
    ((before, still, after),) = answer["images"]
    assert SHAPE == pixels(still).shape
    assert pixels(before).tolist() != pixels(after).tolist()
    moved = post("/perturb", dim=2, delta=1).json()
    assert (still, after) == (moved["reconstruction"], moved["perturbed"])
    drawn = Image.open(io.BytesIO(post("/sweep", PNG, dims=[2], scale=1).content))
    assert "RGB" == drawn.mode


def test_every_channel_is_moved(post: Post, image: Floats, blocks: Runtime) -> None:
    """Equivariance encodes the moved colours; its drawing has them too."""
    answer = post("/equivariance", transform="shift-x", steps=3).json()
    moved = np.stack([transform_image(image, "shift-x", value) for value in answer["values"]])
    presence = blocks.encode(moved).presence[:, answer["label"]]
    assert presence.tolist() == pytest.approx(answer["lengths"], abs=1e-5)
    drawn = Image.open(io.BytesIO(post("/equivariance", PNG, steps=3).content)).convert("RGB")
    red, _, blue = np.asarray(drawn, np.int64)[:150].transpose(2, 0, 1)
    assert 100 < np.abs(red - blue).max()


def test_routing_is_on_a_grid_that_is_no_square(post: Post, blocks: Runtime) -> None:
    """Three rows of five cells, in JSON and drawn over the colours."""
    layer = blocks.bundle.manifest.layers[-1]
    answer = post("/routing").json()
    assert (layer.rows, layer.columns) == (answer["rows"], answer["columns"])
    assert layer.rows != layer.columns
    assert (1, 3, layer.rows, layer.columns) == np.shape(answer["heat_maps"]["grid"])
    drawn = pixels(post("/routing", PNG, scale=8).content)
    assert 60 < np.abs(drawn[0] - drawn[2]).max()
