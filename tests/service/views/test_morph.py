from __future__ import annotations

import base64
import io
from functools import partial

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from tests.service.views.answers import answer_of

ask = partial(answer_of, "/morph")


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


@pytest.mark.parametrize(("count", "expected"), [(1, (422, "file")), (3, (413, None))])
def test_two_images_are_needed(
    count: int, expected: tuple[int, str | None], client: TestClient, digits: list[bytes]
) -> None:
    """Neither one nor three."""
    answer = client.post("/morph", files=[("file", digits[4])] * count)
    assert expected == (answer.status_code, answer.json().get("parameter"))


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
