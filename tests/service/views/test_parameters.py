"""Parameters of views that only the network, or each other, rule out.

Limits of each alone are those of the OpenAPI document: `tests/service/http/test_openapi.py`.
"""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient


@pytest.mark.parametrize(
    ("url", "parameter"),
    [
        ("/equivariance?transform=flip", "transform"),
        ("/equivariance?transform=scale&start=0", "start"),
        ("/equivariance?start=nan", "start"),
        ("/classify?coverage=nan", "coverage"),
        ("/occlusion?patch=29", "patch"),
        ("/occlusion?patch=1", "patch"),
        ("/segment?count=4", "count"),
        ("/sweep?dims=16", "dims"),
        ("/sweep?step=nan", "step"),
        ("/sweep?start=0.5&stop=0.25", "step"),
    ],
)
def test_a_parameter_out_of_range_is_named(
    url: str, parameter: str, client: TestClient, digits: list[bytes]
) -> None:
    """422 before anything is computed, with the parameter at fault."""
    answer = client.post(url, files={"file": digits[7]})
    assert (422, parameter) == (answer.status_code, answer.json()["parameter"]), answer.text
