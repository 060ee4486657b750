from __future__ import annotations

import io
from functools import partial

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from model.preprocess import scale
from model.runtime import Runtime
from model.views.equivariance import transform_image
from model.views.path import trace_path
from tests.service.views.answers import answer_of, drawing_of

walk = partial(answer_of, "/equivariance")


def test_every_step_is_the_network_s_answer(
    client: TestClient, digits: list[bytes], runtime: Runtime
) -> None:
    """Lengths, labels and poses are those of the moved pictures."""
    answer = walk(client, digits[7], transform="turn", start=-30, stop=30, steps=5)
    assert [-30, -15, 0, 15, 30] == answer["values"]
    pixels = scale(np.asarray(Image.open(io.BytesIO(digits[7])), np.uint8)[None])
    moved = np.stack([transform_image(pixels, "turn", value) for value in answer["values"]])
    presence, poses = runtime.encode(moved)
    assert np.allclose(presence[:, answer["label"]], answer["lengths"], atol=1e-5)
    assert presence.argmax(axis=1).tolist() == answer["labels"]
    assert np.allclose(poses[:, answer["label"]], answer["poses"], atol=1e-5)


def test_the_unmoved_picture_is_where_angles_start(client: TestClient, digits: list[bytes]) -> None:
    """At no shift the pose is the one of /perturb, and the angle is zero."""
    answer = walk(client, digits[7], transform="shift-x")
    still = answer["values"].index(0)
    pose = client.post("/perturb", params={"dim": 0, "delta": 0}, files={"file": digits[7]}).json()
    assert pose["pose"] == pytest.approx(answer["poses"][still], abs=1e-5)
    assert 0 == pytest.approx(answer["angles_deg"][still], abs=0.1)
    assert max(answer["angles_deg"]) > 0.1


@pytest.mark.parametrize("transform", ["turn", "shift-x", "scale"])
def test_the_path_is_that_of_the_poses(
    transform: str, client: TestClient, digits: list[bytes]
) -> None:
    """Points, shares and straightness follow from the poses of the same answer."""
    answer = walk(client, digits[4], transform=transform, steps=7)
    expected = trace_path(np.array(answer["poses"], np.float32))
    assert np.allclose(expected.points, answer["points"], atol=1e-4)
    assert np.allclose(expected.explained, answer["explained"], atol=1e-4)
    assert expected.straightness == pytest.approx(answer["straightness"], abs=1e-3)


@pytest.mark.parametrize("transform", ["shift-x", "shift-y", "turn", "scale"])
def test_each_transform_is_drawn(transform: str, client: TestClient, digits: list[bytes]) -> None:
    """Those who accept PNG get a drawing of every transform, with few steps or many."""
    for steps in (2, 64):
        drawn = drawing_of("/equivariance", client, digits[7], transform=transform, steps=steps)
        assert 900 == drawn.width
