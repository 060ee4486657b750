"""What holds for every route holds for those of the protocol."""

from __future__ import annotations

import logging

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from model.views.decode import MAX_POSES
from service.app import create_app
from service.settings import Settings
from tests.serving import serve

KEY = "a-key-of-these-tests"
MODEL = "mnist-compact"
INFER = f"/v2/models/{MODEL}/infer"
RAW = {"Inference-Header-Content-Length": "0"}
BLACK = bytes(4 * 28 * 28)


def test_health_needs_no_key_and_all_else_does(settings: Settings) -> None:
    """An orchestrator has no key; a client without one learns how to send it."""
    with serve(settings, api_keys=(SecretStr(KEY),)) as client:
        for path in ("/v2/health/live", "/v2/health/ready"):
            assert 200 == client.get(path).status_code
        for path in ("/v2", f"/v2/models/{MODEL}", f"/v2/models/{MODEL}/ready", "/v2/nowhere"):
            answer = client.get(path)
            assert (401, ["error"]) == (answer.status_code, list(answer.json()))
            assert "WWW-Authenticate" in answer.headers
        for header in ({"X-API-Key": KEY}, {"Authorization": f"Bearer {KEY}"}):
            assert 200 == client.get("/v2", headers=header).status_code
            assert 200 == client.post(INFER, content=BLACK, headers=RAW | header).status_code


def test_while_bundles_are_loaded_it_is_alive_and_not_ready(settings: Settings) -> None:
    """Each with the protocol's errors."""
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        assert {"live": True} == client.get("/v2/health/live").json()
        for path in ("/v2/health/ready", f"/v2/models/{MODEL}", f"/v2/models/{MODEL}/ready"):
            answer = client.get(path)
            assert (503, ["error"]) == (answer.status_code, list(answer.json()))


def test_a_request_is_one_line_and_one_count(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    """By the path's template; health is neither logged nor counted as rejected."""
    with caplog.at_level(logging.INFO, "service.access"):
        answer = client.post(INFER, content=BLACK, headers=RAW)
        client.get("/v2/health/ready")
    assert ["POST /v2/models/{name}/infer 200"] == [one.getMessage() for one in caplog.records]
    assert {"compute", "queue", "total"} <= {
        one.partition(";")[0] for one in answer.headers["Server-Timing"].split(", ")
    }
    counted = 'capsnet_requests_total{method="POST",route="/v2/models/{name}/infer",status="200"}'
    assert counted in client.get("/metrics").text


def test_a_full_queue_is_told(settings: Settings) -> None:
    """Rows that wait for others count, and the refusal says when to come back."""
    with serve(settings) as client:
        admission = client.app.state.admission
        admission.waiting_rows = settings.max_waiting_rows
        answer = client.post(INFER, content=BLACK, headers=RAW)
        assert (429, ["error"]) == (answer.status_code, list(answer.json()))
        assert 1 <= int(answer.headers["Retry-After"])
        admission.waiting_rows = 0
        assert 200 == client.post(INFER, content=5 * BLACK, headers=RAW).status_code
        assert 0 == admission.waiting_rows


def test_the_decoder_takes_more_poses_than_a_request_may_have_pictures(client: TestClient) -> None:
    """As many as `POST /decode`, and no more."""
    for count, status in ((MAX_POSES, 200), (MAX_POSES + 1, 413)):
        inputs = [
            {"name": "poses", "datatype": "FP32", "shape": [count, 16], "data": 16 * count * [0]},
            {"name": "labels", "datatype": "INT64", "shape": [count], "data": count * [7]},
        ]
        answer = client.post(INFER.replace("/infer", ".decoder/infer"), json={"inputs": inputs})
        assert status == answer.status_code, answer.text


def test_pages_of_other_origins_may_send_tensors(settings: Settings) -> None:
    """They may set the header that says where the tensors begin, and read it."""
    with serve(settings, cors_origins=("https://lab.example",)) as client:
        asked = "inference-header-content-length, content-encoding"
        origin = {"Origin": "https://lab.example", "Access-Control-Request-Method": "POST"}
        headers = {**origin, "Access-Control-Request-Headers": asked}
        assert httpx.codes.OK == client.options(INFER, headers=headers).status_code
        exposed = client.get("/v2", headers=origin).headers["Access-Control-Expose-Headers"]
        assert "Inference-Header-Content-Length" in exposed


def test_one_bad_tensor_does_not_fail_its_neighbours(client: TestClient) -> None:
    """It is refused before it is in a batch with them."""
    bad = np.full(28 * 28, np.nan, np.float32).tobytes()
    answers = [
        client.post(INFER, content=content, headers=RAW).status_code
        for content in (BLACK, bad, BLACK + bad, BLACK)
    ]
    assert [200, 422, 422, 200] == answers
