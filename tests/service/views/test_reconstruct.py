from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from PIL import Image

from model.preprocess import scale
from model.runtime import Runtime
from tests.service.views.answers import answer_of

Pixels = Callable[[str | bytes], NDArray[np.int64]]
PNG = {"accept": "image/png"}

reconstruct = partial(answer_of, "/reconstruct")


def drawn(runtime: Runtime, picture: bytes, target: int | None = None) -> tuple[int, Any]:
    """The label and the image (H, W) that the network itself gives."""
    image = scale(np.asarray(Image.open(io.BytesIO(picture)), np.uint8)[None, None])
    presence, poses = runtime.encode(image)
    label = int(presence[0].argmax()) if target is None else target
    return label, runtime.decode(poses[:, label], np.array([label]))[0, 0]


def test_the_answer_has_its_promised_shape(client: TestClient, digits: list[bytes]) -> None:
    """Model, label, class name, length, picture, error and fit."""
    expected = {"model", "version", "label", "class_name", "length", "fit"}
    expected |= {"input", "reconstruction", "error"}
    answer = reconstruct(client, digits[7])
    assert expected == answer.keys()
    assert "mnist" == answer["model"]


@pytest.mark.parametrize("target", [0, 5, 9])
def test_another_class_can_be_drawn(
    target: int, client: TestClient, digits: list[bytes], runtime: Runtime, pixels: Pixels
) -> None:
    """With a target, label, length and picture are those of that class."""
    _, image = drawn(runtime, digits[7], target)
    lengths = client.post("/classify", files={"file": digits[7]}).json()["predictions"][0]
    answer = reconstruct(client, digits[7], target=target)
    expected = (target, str(target), lengths["lengths"][target])
    assert expected == (answer["label"], answer["class_name"], answer["length"])
    assert np.abs(image * 255 - pixels(answer["reconstruction"])).max() <= 0.51


def test_a_photo_is_drawn_at_the_network_s_size(
    client: TestClient, photo: bytes, pixels: Pixels
) -> None:
    """However large the photo, the reconstruction has 28x28 pixels."""
    answer = reconstruct(client, photo)
    assert "digit" == answer["fit"]["fit"]
    assert (28, 28) == pixels(answer["reconstruction"]).shape


def test_png_is_given_to_those_who_accept_it(
    client: TestClient, digits: list[bytes], pixels: Pixels
) -> None:
    """The PNG holds the pixels of the JSON's data URL."""
    answer = client.post("/reconstruct", files={"file": digits[7]}, headers=PNG)
    assert (200, "image/png") == (answer.status_code, answer.headers["content-type"])
    expected = pixels(reconstruct(client, digits[7])["reconstruction"])
    assert expected.tolist() == pixels(answer.content).tolist()


@pytest.mark.parametrize("factor", [2, 32])
def test_scale_enlarges_the_png_by_whole_pixels(
    factor: int, client: TestClient, digits: list[bytes], pixels: Pixels
) -> None:
    """Each pixel becomes a square; none is blended."""
    small, large = (
        pixels(
            client.post(
                "/reconstruct", params={"scale": size}, files={"file": digits[7]}, headers=PNG
            ).content
        )
        for size in (1, factor)
    )
    assert np.kron(small, np.ones((factor, factor), int)).tolist() == large.tolist()


def test_json_is_preferred_by_those_who_accept_anything(
    client: TestClient, digits: list[bytes]
) -> None:
    """A browser's or curl's */* gets JSON."""
    answer = client.post("/reconstruct", files={"file": digits[7]}, headers={"accept": "*/*"})
    assert "application/json" == answer.headers["content-type"]


def test_other_media_types_are_refused(client: TestClient, digits: list[bytes]) -> None:
    """Neither HTML nor JPEG is made here."""
    headers = {"accept": "text/html, image/jpeg"}
    answer = client.post("/reconstruct", files={"file": digits[7]}, headers=headers)
    assert 406 == answer.status_code


def test_a_problem_is_json_even_for_those_who_want_png(client: TestClient) -> None:
    """There is no picture of a problem."""
    answer = client.post("/reconstruct", files={"file": b"text"}, headers=PNG)
    expected = (415, "application/problem+json")
    assert expected == (answer.status_code, answer.headers["content-type"])
