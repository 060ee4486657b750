"""Bulk requests take what interactive ones leave."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from model.preprocess import Floats
from model.runtime import Encoding, Runtime
from service.inference.batcher import Batcher
from service.inference.job import Job
from service.settings import Settings
from tests.serving import serve

BULK = {"X-Priority": "bulk"}


def test_bulk_requests_get_the_same_answers(client: TestClient, digits: list[bytes]) -> None:
    """The header says when a request is computed, not what."""
    file = {"file": digits[7]}
    interactive = client.post("/classify", files=file, headers={"X-Priority": "interactive"})
    assert interactive.json() == client.post("/classify", files=file, headers=BULK).json()


def test_other_priorities_are_refused(client: TestClient, digits: list[bytes]) -> None:
    """A misspelt priority would be an interactive one."""
    headers = {"X-Priority": "low"}
    answer = client.post("/classify", files={"file": digits[7]}, headers=headers)
    assert 422 == answer.status_code
    assert "X-Priority" == answer.json()["parameter"]
    assert "X-Priority is interactive or bulk" == answer.json()["detail"]


def test_an_interactive_request_overtakes_the_rows_of_a_bulk_request(
    settings: Settings, digits: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the batch that runs."""
    entered, may_go, batches = threading.Semaphore(0), threading.Semaphore(0), []
    queued = threading.Semaphore(0)
    real, start = Runtime.encode, Batcher.start

    def encode(runtime: Runtime, images: Floats) -> Encoding[Floats]:
        batches.append(len(images))
        entered.release()
        assert may_go.acquire(timeout=60)
        return real(runtime, images)

    def queue(batcher: Batcher, key: Hashable, rows: list[Any], job: Job) -> asyncio.Future[Any]:
        future = start(batcher, key, rows, job)
        queued.release()
        return future

    monkeypatch.setattr(Runtime, "encode", encode)
    monkeypatch.setattr(Batcher, "start", queue)
    monkeypatch.setattr(Runtime, "row_s", lambda *_: math.inf)  # not on the event loop
    with serve(settings, max_batch_rows=2) as client, ThreadPoolExecutor(2) as pool:
        files = [("file", digit) for digit in digits[:5]]
        bulk = pool.submit(client.post, "/classify", files=files, headers=BULK)
        assert entered.acquire(timeout=60)
        assert queued.acquire(timeout=60)
        quick = pool.submit(client.post, "/classify", files={"file": digits[7]})
        assert queued.acquire(timeout=60)
        may_go.release(2)
        assert quick.result().is_success
        assert not bulk.done()
        may_go.release(9)
        assert 5 == len(bulk.result().json()["predictions"])
    assert [2, 1, 2, 1] == batches
