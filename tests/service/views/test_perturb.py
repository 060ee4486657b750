from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from fastapi.testclient import TestClient
from numpy.typing import NDArray

from model.runtime import Runtime
from tests.service.views.answers import answer_of

Pixels = Callable[[str | bytes], NDArray[np.int64]]
PNG = {"accept": "image/png"}

perturb = partial(answer_of, "/perturb")


def test_the_answer_has_its_promised_shape(client: TestClient, digits: list[bytes]) -> None:
    """Everything of /reconstruct but the error, and what was moved, from where to where."""
    answer = perturb(client, digits[7], dim=4, delta=0.25)
    expected = {"model", "version", "label", "class_name", "length", "dim", "delta", "pose"}
    expected |= {"perturbed_pose", "reconstruction", "perturbed", "meaning", "fit"}
    assert expected == answer.keys()
    assert ("mnist", 4, 0.25) == (answer["model"], answer["dim"], answer["delta"])
    assert (16, 16) == (len(answer["pose"]), len(answer["perturbed_pose"]))


def test_the_pose_is_that_of_the_label(client: TestClient, digits: list[bytes]) -> None:
    """The pose is the one that /classify gives for the label."""
    classified = client.post("/classify", params={"poses": True}, files={"file": digits[7]})
    (prediction,) = classified.json()["predictions"]
    answer = perturb(client, digits[7], dim=0, delta=0.1)
    assert prediction["label"] == answer["label"]
    assert prediction["poses"][answer["label"]] == answer["pose"]


@pytest.mark.parametrize("delta", [-1, -0.25, 0.1, 1])
@pytest.mark.parametrize("dim", [0, 7, 15])
def test_one_dimension_moves_by_delta(
    dim: int, delta: float, client: TestClient, digits: list[bytes]
) -> None:
    """The two poses differ in the dimension that was named, by as much as was asked."""
    answer = perturb(client, digits[7], dim=dim, delta=delta)
    expected = [delta if place == dim else 0 for place in range(16)]
    moved = np.subtract(answer["perturbed_pose"], answer["pose"])
    assert expected == pytest.approx(moved, abs=2e-6)


@pytest.mark.parametrize("dim", [0, 15])
def test_no_move_leaves_the_picture(dim: int, client: TestClient, digits: list[bytes]) -> None:
    """With delta=0 both pictures are the one that /reconstruct draws."""
    expected = client.post("/reconstruct", files={"file": digits[7]}).json()["reconstruction"]
    answer = perturb(client, digits[7], dim=dim, delta=0)
    assert [expected, expected] == [answer["reconstruction"], answer["perturbed"]]


@pytest.mark.parametrize("dim", range(16))
def test_every_dimension_changes_the_picture(
    dim: int, client: TestClient, digits: list[bytes], pixels: Pixels
) -> None:
    """A move of one is seen in the picture, whichever dimension moves."""
    answer = perturb(client, digits[7], dim=dim, delta=1)
    before, after = pixels(answer["reconstruction"]), pixels(answer["perturbed"])
    assert np.abs(before - after).max() >= 2


@pytest.mark.parametrize("target", [None, 3])
def test_the_picture_is_the_decoder_s_of_the_moved_pose(
    target: int | None,
    client: TestClient,
    digits: list[bytes],
    runtime: Runtime,
    pixels: Pixels,
) -> None:
    """The network itself draws the perturbed pose like this."""
    query = {} if target is None else {"target": target}
    answer = perturb(client, digits[7], dim=4, delta=1, **query)
    pose = np.array([answer["perturbed_pose"]], np.float32)
    image = runtime.decode(pose, np.array([answer["label"]]))[0, 0]
    assert np.abs(image * 255 - pixels(answer["perturbed"])).max() <= 0.51


def test_dimensions_are_those_of_the_model(client: TestClient, digits: list[bytes]) -> None:
    """Poses of the other network have eight numbers."""
    query = {"model": "strokes", "dim": 8, "delta": 0}
    answer = client.post("/perturb", params=query, files={"file": digits[7]})
    assert (422, "dim is 0 to 7") == (answer.status_code, answer.json()["detail"])


def test_another_class_can_be_moved(client: TestClient, digits: list[bytes]) -> None:
    """With a target, pose and picture are those of that class."""
    query = {"target": 3}
    expected = client.post("/reconstruct", params=query, files={"file": digits[7]}).json()
    answer = perturb(client, digits[7], dim=4, delta=0.5, **query)
    for name in ("label", "class_name", "length", "reconstruction", "fit"):
        assert expected[name] == answer[name]


def test_png_is_the_perturbed_picture(
    client: TestClient, digits: list[bytes], pixels: Pixels
) -> None:
    """Those who accept PNG get the pixels of the JSON's perturbed picture."""
    query = {"dim": 4, "delta": 1}
    answer = client.post("/perturb", params=query, files={"file": digits[7]}, headers=PNG)
    assert (200, "image/png") == (answer.status_code, answer.headers["content-type"])
    expected = pixels(perturb(client, digits[7], **query)["perturbed"])
    assert expected.tolist() == pixels(answer.content).tolist()


def test_scale_enlarges_the_png_by_whole_pixels(
    client: TestClient, digits: list[bytes], pixels: Pixels
) -> None:
    """Each pixel becomes a square; none is blended."""
    small, large = (
        pixels(
            client.post(
                "/perturb",
                params={"dim": 4, "delta": 1, "scale": size},
                files={"file": digits[7]},
                headers=PNG,
            ).content
        )
        for size in (1, 3)
    )
    assert np.kron(small, np.ones((3, 3), int)).tolist() == large.tolist()
