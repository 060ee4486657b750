"""Parameters of views that are refused."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient


@pytest.mark.parametrize(
    ("url", "parameter"),
    [
        ("/equivariance?transform=flip", "transform"),
        ("/equivariance?transform=scale&start=0", "start"),
        ("/equivariance?transform=turn&stop=181", "stop"),
        ("/equivariance?transform=shift-x&stop=15", "start"),
        ("/equivariance?start=nan", "start"),
        ("/equivariance?start=10&stop=5", "start"),
        ("/equivariance?steps=1", "steps"),
        ("/equivariance?steps=65", "steps"),
        ("/equivariance?target=10", "target"),
        ("/neighbours?count=0", "count"),
        ("/neighbours?count=21", "count"),
        ("/neighbours?target=10", "target"),
        ("/occlusion?patch=29", "patch"),
        ("/occlusion?patch=65", "patch"),
        ("/occlusion?patch=0", "patch"),
        ("/occlusion?patch=4&stride=5", "patch"),
        ("/occlusion?patch=4&stride=1", "patch"),
        ("/occlusion?stride=20", "stride"),
        ("/occlusion?stride=wide", "stride"),
        ("/occlusion?dim=16", "dim"),
        ("/occlusion?dim=-1", "dim"),
        ("/occlusion?target=10", "target"),
        ("/occlusion?colour=red", "colour"),
        ("/rivals?count=0", "count"),
        ("/rivals?count=65", "count"),
        ("/rivals?to=3", "to"),
        ("/routing-off?target=10", "target"),
        ("/routing-off?variant=uniform", "variant"),
        ("/sweep?dims=16", "dims"),
        ("/sweep?dims=-1", "dims"),
        ("/sweep?dims=3&dims=3", "dims"),
        ("/sweep?step=0", "step"),
        ("/sweep?step=nan", "step"),
        ("/sweep?step=0.01", "step"),
        ("/sweep?step=1e-06", "step"),
        ("/sweep?step=1e-310", "step"),
        ("/sweep?start=0.5&stop=0.25", "step"),
        ("/sweep?start=-2", "start"),
        ("/sweep?stop=inf", "stop"),
        ("/sweep?target=10", "target"),
        ("/sweep?begin=0", "begin"),
        ("/sweep?scale=9", "scale"),
    ],
)
def test_a_parameter_out_of_range_is_named(
    url: str, parameter: str, client: TestClient, digits: list[bytes]
) -> None:
    """422 before anything is computed, with the parameter at fault."""
    answer = client.post(url, files={"file": digits[7]})
    assert (422, parameter) == (answer.status_code, answer.json()["parameter"]), answer.text
