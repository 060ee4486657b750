from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from model.bundle import Bundle
from model.runtime import Runtime
from service.app import create_app
from service.inference.engine import open_engine
from service.settings import Settings
from service.views import MAX_JSON_BYTES

PNG = {"accept": "image/png"}
POSE = [0.25, -0.25] * 8


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        ({"pose": POSE[1:], "label": 3}, "pose"),
        ({"pose": [*POSE[1:], "0.1"], "label": 3}, "pose"),
        ({"pose": [*POSE[1:], 11], "label": 3}, "pose"),
        ({"poses": [POSE] * 257, "label": 3}, "poses"),
        ({"pose": POSE, "label": 10}, "label"),
        ({"pose": POSE}, "label"),
        ({"pose": POSE, "label": 3, "dim": 1}, "dim"),
    ],
)
def test_a_parameter_out_of_range_is_named(
    body: dict[str, Any], parameter: str, client: TestClient
) -> None:
    """422, and the client can tell which member to mend."""
    answer = client.post("/decode", json=body)
    assert (422, parameter) == (answer.status_code, answer.json().get("parameter")), answer.text


@pytest.mark.parametrize(
    "content", ["", "pose", "[]", "3", '{"pose": [', '{"label": 3}', "[" * 100_000]
)
def test_a_body_that_is_no_pose_is_malformed(content: str, client: TestClient) -> None:
    """Whatever else is sent as JSON is a 400."""
    answer = client.post("/decode", content=content, headers={"content-type": "application/json"})
    assert 400 == answer.status_code, answer.text
    assert "application/problem+json" == answer.headers["content-type"]


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_larger_than_any_poses_is_refused(
    announced: bool,  # noqa: FBT001
    settings: Settings,
    bundle_path: Path,
) -> None:
    """However it is sent, and though pictures may be larger."""
    roomy = settings.model_copy(update={"max_body_bytes": 2 * MAX_JSON_BYTES})
    engine = open_engine({"mnist": Runtime(Bundle.open(bundle_path), device="cpu", threads=1)})
    body = json.dumps({"poses": [POSE] * 256, "label": 3})
    headers = {"content-type": "application/json"}
    with TestClient(create_app(roomy, engine), base_url="http://localhost") as client:
        for size, expected in ((MAX_JSON_BYTES, 200), (MAX_JSON_BYTES + 1, 413)):
            content = body.ljust(size).encode()
            sent = content if announced else iter([content[:1000], content[1000:]])
            answer = client.post("/decode", content=sent, headers=headers)
            assert expected == answer.status_code, answer.text
