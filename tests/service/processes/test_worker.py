from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from service.processes.worker import Worker
from service.settings import Settings
from service.telemetry import FOLDER

KEY = "an-admin-key-of-tests"


def test_a_worker_that_is_starting_reloads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes no copy current that it has not loaded."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    settings = Settings.model_validate({"admin_keys": (KEY,), "workers": 1})
    worker = Worker(settings, 0, tmp_path, lambda: None)
    client = TestClient(
        worker.app, raise_server_exceptions=False, base_url="http://localhost"
    )  # its lifespan has not begun
    answer = client.post("/models/reload", headers={"X-API-Key": KEY})
    assert httpx.codes.SERVICE_UNAVAILABLE == answer.status_code
    assert "the service is starting" in answer.json()["detail"]
    assert not (tmp_path / "current").exists()
