from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

PNG = {"accept": "image/png"}


def sweep(client: TestClient, picture: bytes, **query: Any) -> dict[str, Any]:
    answer = client.post("/sweep", params=query, files={"file": picture})
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_by_default_it_is_the_paper_s(client: TestClient, digits: list[bytes]) -> None:
    """All sixteen dimensions by eleven deltas."""
    answer = sweep(client, digits[7])
    assert list(range(16)) == answer["dims"]
    assert [-0.25, 0.25] == [answer["deltas"][0], answer["deltas"][-1]]
    assert [11] * 16 == [len(row) for row in answer["images"]]


def test_each_picture_is_that_of_perturb(client: TestClient, digits: list[bytes]) -> None:
    """One cell of the grid is what /perturb draws for its dimension and delta."""
    query = {"start": -0.5, "stop": 1, "step": 0.75, "target": 3}
    answer = sweep(client, digits[7], dims=[15, 4], **query)
    assert ([15, 4], [-0.5, 0.25, 1.0]) == (answer["dims"], answer["deltas"])
    for dim, row in zip(answer["dims"], answer["images"], strict=True):
        for delta, image in zip(answer["deltas"], row, strict=True):
            single = client.post(
                "/perturb",
                params={"dim": dim, "delta": delta, "target": 3},
                files={"file": digits[7]},
            ).json()
            assert single["perturbed"] == image
            assert single["pose"] == answer["pose"]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ({"dims": 16}, "dims"),
        ({"dims": -1}, "dims"),
        ({"dims": [3, 3]}, "dims"),
        ({"step": 0}, "step"),
        ({"step": "nan"}, "step"),
        ({"step": 0.01}, "step"),
        ({"step": 1e-6}, "step"),
        ({"step": 1e-310}, "step"),
        ({"start": 0.5, "stop": 0.25}, "step"),
        ({"start": -2}, "start"),
        ({"stop": "inf"}, "stop"),
        ({"target": 10}, "target"),
        ({"begin": 0}, "begin"),
        ({"scale": 9}, "scale"),
    ],
)
def test_a_parameter_out_of_range_is_named(
    query: dict[str, Any], parameter: str, client: TestClient, digits: list[bytes]
) -> None:
    """422 before anything is computed, with the parameter at fault."""
    answer = client.post("/sweep", params=query, files={"file": digits[7]})
    assert (422, parameter) == (answer.status_code, answer.json()["parameter"]), answer.text


def test_png_is_a_grid_of_the_pictures(client: TestClient, digits: list[bytes]) -> None:
    """The drawing grows with its rows, columns and scale, and holds light strokes on dark cells."""
    sizes = {}
    for dims, scale in (([4], 1), ([4, 5], 1), ([4], 4)):
        answer = client.post(
            "/sweep",
            params={"dims": dims, "scale": scale},
            files={"file": digits[7]},
            headers=PNG,
        )
        assert "image/png" == answer.headers["content-type"]
        picture = Image.open(io.BytesIO(answer.content))
        sizes[len(dims), scale] = picture.size
        assert np.asarray(picture).min() < 128
    assert 30 == sizes[2, 1][1] - sizes[1, 1][1]
    assert 11 * 3 * 28 == sizes[1, 4][0] - sizes[1, 1][0]
