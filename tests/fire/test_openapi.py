from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest

from tests.fire.openapi import fuzz
from tests.processes import SOURCE, running

MODEL = "mnist-compact"


@pytest.fixture(scope="module")
def service() -> Iterator[httpx.Client]:
    """A service in processes of its own; the queue of one worker."""
    environment = {
        "CAPSNET_DEFAULT_MODEL": MODEL,
        "CAPSNET_MODELS": f'["{MODEL}"]',
        "CAPSNET_WORKERS": "1",
    }
    with running(lambda _: SOURCE, environment) as (_, client):
        yield client


def test_the_document_says_what_is_accepted_and_answered(service: httpx.Client) -> None:
    """Allowed and forbidden requests of every route get answers that it names, and break nothing.

    FIRE_REQUESTS=100000 sends so many.
    """
    started = started_at(service)
    statuses = fuzz(str(service.base_url), int(os.environ.get("FIRE_REQUESTS", "150")), seed=48)
    print(f"requests from the document: {dict(statuses)}")
    assert {200, 400, 404, 422} <= statuses.keys()
    assert started == started_at(service)


def started_at(service: httpx.Client) -> set[str]:
    """The lines of /metrics that tell which processes answer, since when."""
    lines = service.get("/metrics").text.splitlines()
    return {line for line in lines if line.startswith("process_start_time_seconds")}
