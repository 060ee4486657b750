"""What holds for every route holds for those of the protocol."""

from __future__ import annotations

from pydantic import SecretStr

from service.pictures import SAMPLES
from service.settings import Settings
from tests.serving import serve

KEY = "a-key-of-these-tests"
MODEL = "mnist-compact"
INFER = f"/v2/models/{MODEL}/infer"
RAW = {"Inference-Header-Content-Length": "0"}
SEVEN = (SAMPLES / "7.png").read_bytes()


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
            assert 200 == client.post(INFER, content=SEVEN, headers=RAW | header).status_code


def test_a_full_queue_is_told(settings: Settings) -> None:
    """Rows that wait for others count, and the refusal says when to come back."""
    with serve(settings) as client:
        admission = client.app.state.admission
        admission.waiting_rows = settings.max_waiting_rows
        answer = client.post(INFER, content=SEVEN, headers=RAW)
        assert (429, ["error"]) == (answer.status_code, list(answer.json()))
        assert 1 <= int(answer.headers["Retry-After"])
        admission.waiting_rows = 0
        assert 200 == client.post(INFER, content=SEVEN, headers=RAW).status_code
        assert 0 == admission.waiting_rows
