from __future__ import annotations

import base64
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray
from PIL import Image

from model.runtime import Runtime
from model.views.morph import interpolate
from tests.service.views.answers import answer_of, drawing_of

Pixels = Callable[[str], NDArray[np.int64]]


ask = partial(answer_of, "/morph")


def pose_of(client: TestClient, picture: bytes, target: int) -> NDArray[np.float32]:
    query = {"target": target, "dim": 0, "delta": 0}
    answer = client.post("/perturb", params=query, files={"file": picture}).json()
    return np.array(answer["pose"], np.float32)


def test_frames_are_the_poses_in_between(
    client: TestClient, digits: list[bytes], runtime: Runtime, pixels: Pixels
) -> None:
    """Decoded, then encoded again."""
    found = ask(client, digits[4], digits[9], target=4, steps=5)
    ends = [pose_of(client, digits[label], 4) for label in (4, 9)]
    drawn = runtime.decode(interpolate(*ends, 5), np.full(5, 4))
    for frame, expected in zip(found["frames"], drawn, strict=True):
        assert np.abs(pixels(frame) - 255 * expected[0]).max() <= 1
    presence = runtime.encode(drawn).presence
    assert np.allclose(presence[:, 4], found["lengths"], atol=1e-3)
    assert presence.argmax(axis=1).tolist() == found["labels"]
    assert (found["label"], found["class_name"]) == (4, "4")
    assert found["angle_deg"] > 0


def test_the_same_image_twice_stays(client: TestClient, digits: list[bytes]) -> None:
    """All frames are one, at no angle."""
    found = ask(client, digits[4], digits[4], steps=3)
    assert 0 == pytest.approx(found["angle_deg"], abs=0.1)
    assert found["length"] == found["second_length"]
    assert 1 == len(set(found["frames"]))


@pytest.mark.parametrize(("model", "mode"), [("mnist", "L"), ("blocks", "RGB")])
def test_the_animation_goes_there_and_back(
    model: str, mode: str, client: TestClient, digits: list[bytes]
) -> None:
    """A WebP that repeats for ever: of five frames, the inner three on the way back too."""
    found = ask(client, digits[4], digits[9], model=model, target=1, steps=5)
    head, _, encoded = found["animation"].partition(",")
    assert "data:image/webp;base64" == head
    animation = Image.open(io.BytesIO(base64.b64decode(encoded)), formats=["WEBP"])
    assert (8, 0) == (animation.n_frames, animation.info["loop"])
    frames = []
    for place in range(8):
        animation.seek(place)
        frames.append(np.asarray(animation.convert(mode), np.int64))
    for there, back in ((1, 7), (2, 6), (3, 5)):
        assert np.array_equal(frames[there], frames[back])


@pytest.mark.parametrize(
    ("labels", "query", "status", "parameter"),
    [
        pytest.param([4], {}, 422, "file", id="one is too few"),
        pytest.param([4, 4, 4], {}, 413, None, id="three are too many"),
        pytest.param([4, 4], {"steps": 1}, 422, "steps", id="few steps"),
        pytest.param([4, 4], {"steps": 65}, 422, "steps", id="many steps"),
        pytest.param([4, 4], {"target": 10}, 422, "target", id="no such class"),
    ],
)
def test_what_is_wrong_is_named(
    labels: list[int],
    query: dict[str, Any],
    status: int,
    parameter: str | None,
    *,
    client: TestClient,
    digits: list[bytes],
) -> None:
    """Neither one nor three images; and the client can tell which parameter it is."""
    files = [("file", digits[label]) for label in labels]
    answer = client.post("/morph", params=query, files=files)
    assert (status, parameter) == (answer.status_code, answer.json().get("parameter"))


def test_images_of_two_classes_need_a_target(client: TestClient, digits: list[bytes]) -> None:
    """The message names both classes."""
    labels = [
        client.post("/classify", files={"file": digit}).json()["predictions"][0]["label"]
        for digit in digits
    ]
    other = next(place for place, label in enumerate(labels) if label != labels[0])
    files = [("file", digits[place]) for place in (0, other)]
    answer = client.post("/morph", files=files)
    assert (422, "target") == (answer.status_code, answer.json()["parameter"]), answer.text
    assert f"'{labels[0]}' and '{labels[other]}'" in answer.json()["detail"]


def test_an_image_that_cannot_be_read_is_told(client: TestClient, digits: list[bytes]) -> None:
    """Whichever of the two it is."""
    for pictures in ([digits[4], b"no image"], [b"no image", digits[4]]):
        answer = client.post("/morph", files=[("file", picture) for picture in pictures])
        assert 415 == answer.status_code, answer.text


@pytest.mark.parametrize("steps", [2, 64])
def test_a_strip_is_drawn(steps: int, client: TestClient, digits: list[bytes]) -> None:
    """With few frames or many."""
    drawn = drawing_of("/morph", client, digits[4], digits[9], target=4, steps=steps)
    assert (900, 280) == drawn.size
