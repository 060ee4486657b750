from __future__ import annotations

import numpy as np
import pytest
from fastapi.testclient import TestClient

from model.views.trajectory import trace_path
from tests.service.views.answers import answer_of, drawing_of


@pytest.mark.parametrize("transform", ["turn", "shift-x", "scale"])
def test_the_path_is_that_of_the_poses(
    transform: str, client: TestClient, digits: list[bytes]
) -> None:
    """Of the same steps in /equivariance."""
    found = answer_of("/trajectory", client, digits[4], transform=transform, steps=7)
    walked = answer_of("/equivariance", client, digits[4], transform=transform, steps=7)
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
    drawing_of("/trajectory", client, digits[7], transform="turn", steps=steps)
