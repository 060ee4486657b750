from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice

import httpx
import pytest
from PIL import Image

from service.pictures import SAMPLES
from tests.fire.images import FORMATS, mutants, originals, send
from tests.processes import SOURCE, running

MODEL = "mnist-compact"


@pytest.fixture(scope="module")
def service() -> Iterator[httpx.Client]:
    """A service in processes of its own."""
    environment = {"CAPSNET_MODELS": f'["{MODEL}"]', "CAPSNET_DEFAULT_MODEL": MODEL}
    with running(lambda _: SOURCE, environment | {"CAPSNET_WORKERS": "1"}) as (_, client):
        yield client


def test_the_whole_files_are_read(service: httpx.Client) -> None:
    """What is mutated is of every format, and nothing is wrong with it before."""
    files = originals()
    assert set(FORMATS) == {name.partition(" ")[0] for name in files}
    for name, content in files.items():
        Image.open(io.BytesIO(content), formats=[name.partition(" ")[0]]).load()
        answer = service.post("/classify", files={"file": content})
        assert 200 == answer.status_code, f"{name}: {answer.text}"


def test_mutants_are_the_same_for_the_same_seed() -> None:
    """What was found once is found again."""
    first, again, others = (list(islice(mutants(seed), 100)) for seed in (1, 1, 2))
    assert first == again
    assert first != others


def test_broken_files_break_nothing(service: httpx.Client) -> None:
    """They are read or refused; the process that answers stays, and answers right."""
    pid = processes(service)
    statuses = send(str(service.base_url), requests=300, seed=48)
    print(f"mutated images: {dict(statuses)}")
    assert {200, 415, 422} <= statuses.keys() <= {200, 400, 413, 415, 422}
    seven = service.post("/classify", files={"file": (SAMPLES / "7.png").read_bytes()})
    assert 7 == seven.json()["predictions"][0]["label"]
    assert pid == processes(service)


def processes(service: httpx.Client) -> set[str]:
    """The lines of /metrics that tell which processes answer, since when."""
    lines = service.get("/metrics").text.splitlines()
    return {line for line in lines if line.startswith("process_start_time_seconds")}
