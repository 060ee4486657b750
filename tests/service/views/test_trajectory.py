from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from model.interpret.trajectory import trace_path


def ask(client: TestClient, path: str, picture: bytes, **query: Any) -> dict[str, Any]:
    answer = client.post(path, params=query, files={"file": picture})
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("transform", ["turn", "shift-x", "scale"])
def test_the_path_is_that_of_the_poses(
    transform: str, client: TestClient, digits: list[bytes]
) -> None:
    """Of the same steps in /equivariance."""
    found = ask(client, "/trajectory", digits[4], transform=transform, steps=7)
    walked = ask(client, "/equivariance", digits[4], transform=transform, steps=7)
    expected = trace_path(np.array(walked["poses"], np.float32))
    assert walked["values"] == found["values"]
    assert walked["lengths"] == pytest.approx(found["lengths"], abs=1e-5)
    assert np.allclose(expected.points, found["points"], atol=1e-4)
    assert expected.straightness == pytest.approx(found["straightness"], abs=1e-3)
    assert 0 <= found["straightness"] <= 1
    assert 1.000001 >= sum(found["explained"])


@pytest.mark.parametrize("steps", [2, 64])
def test_it_is_drawn(steps: int, client: TestClient, digits: list[bytes]) -> None:
    """With few steps or many."""
    query = {"transform": "turn", "steps": steps}
    headers = {"accept": "image/png"}
    answer = client.post("/trajectory", params=query, files={"file": digits[7]}, headers=headers)
    assert (200, "image/png") == (answer.status_code, answer.headers["content-type"])
    assert "PNG" == Image.open(io.BytesIO(answer.content)).format
