from __future__ import annotations

import io
from functools import partial
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from model.preprocess import scale
from model.runtime import Runtime
from model.views.occlusion import plan_occlusion
from tests.service.views.answers import answer_of, drawing_of

ask = partial(answer_of, "/occlusion")


@pytest.mark.parametrize("dim", [None, 3])
def test_the_map_is_the_network_s_answer_to_each_patch(
    dim: int | None, client: TestClient, digits: list[bytes], runtime: Runtime
) -> None:
    """Also to those that hide nothing, which are not encoded."""
    query = {"patch": 5, "stride": 4, "target": 2} | ({} if dim is None else {"dim": dim})
    found = ask(client, digits[7], **query)
    image = scale(np.asarray(Image.open(io.BytesIO(digits[7])), np.uint8)[None])
    plan = plan_occlusion(28, 28, patch=5, stride=4)
    presence, poses = runtime.encode(plan.images(image, np.zeros(1, np.float32)))
    before = runtime.encode(image[None])
    watched, still = (
        (presence[:, 2], before.presence[0, 2])
        if dim is None
        else (poses[:, 2, dim], before.poses[0, 2, dim])
    )
    assert np.allclose(plan.on_pixels(watched - still), found["map"], atol=1e-5)
    assert (dim, 5, 4) == (found["dim"], found["patch"], found["stride"])
    assert float(still) == pytest.approx(found["value"], abs=1e-5)
    assert float(watched.min()) == pytest.approx(found["lowest"], abs=1e-5)
    assert float(watched.max()) == pytest.approx(found["highest"], abs=1e-5)
    labels = presence.argmax(axis=1).reshape(plan.shape)
    assert labels.tolist() == found["labels"]


def test_a_blank_image_has_nothing_to_hide(client: TestClient) -> None:
    """The map is flat, and no patch was encoded."""
    file = io.BytesIO()
    Image.new("L", (28, 28)).save(file, "PNG")
    found = ask(client, file.getvalue(), fit="none", polarity="light-on-dark")
    assert 0 == np.abs(found["map"]).max()


def test_photographs_are_hidden_by_their_mean(client: TestClient) -> None:
    """An image of one colour is not altered by it; one of two is."""
    file = io.BytesIO()
    Image.new("RGB", (32, 24), (200, 30, 30)).save(file, "PNG")
    assert 0 == np.abs(ask(client, file.getvalue(), model="blocks")["map"]).max()
    half = Image.new("RGB", (32, 24), (200, 30, 30))
    half.paste((0, 0, 255), (0, 0, 16, 24))
    file = io.BytesIO()
    half.save(file, "PNG")
    assert 0 < np.abs(ask(client, file.getvalue(), model="blocks")["map"]).max()


@pytest.mark.parametrize(
    "query",
    [{"model": "mnist"}, {"model": "mnist", "dim": 2}, {"model": "strokes"}, {"model": "blocks"}],
)
def test_maps_are_drawn(query: dict[str, Any], client: TestClient, digits: list[bytes]) -> None:
    """Of presence and of a dimension, for digits, pairs and photographs."""
    assert (640, 370) == drawing_of("/occlusion", client, digits[7], **query).size
