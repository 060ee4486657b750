"""Pictures that are sent again: their encodings are kept for the client that sent them."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import SecretStr

from model.preprocess import Floats
from model.runtime import Encoding, Runtime
from service.settings import Settings
from tests.serving import serve

KEYS = ("a-key-of-one-client", "a-key-of-another-client")
KEPT = 1_000_000


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The images of each batch that is encoded."""
    batches, real = [], Runtime.encode

    def encode(runtime: Runtime, images: Floats) -> Encoding[Floats]:
        batches.append(len(images))
        return real(runtime, images)

    monkeypatch.setattr(Runtime, "encode", encode)
    return batches


def test_views_of_one_picture_encode_it_once(
    settings: Settings, digits: list[bytes], rows: list[int]
) -> None:
    """Their answers are those without kept encodings; another network encodes it again."""
    paths = ("/classify", "/sweep", "/reconstruct", "/perturb?dim=1&delta=0.1", "/rivals")
    file = {"file": digits[7]}
    with serve(settings, encoding_cache_bytes=KEPT) as client:
        kept = [client.post(path, files=file).json() for path in paths]
        assert [1] == rows
        assert client.post("/classify?model=strokes", files=file).is_success
        assert [1, 1] == rows
    with serve(settings) as client:
        assert kept == [client.post(path, files=file).json() for path in paths]
    assert [1] * (2 + len(paths)) == rows


def test_each_key_has_encodings_of_its_own(
    settings: Settings, digits: list[bytes], rows: list[int]
) -> None:
    """So the time of an answer does not tell which pictures other clients have sent."""
    keys = tuple(map(SecretStr, KEYS))
    with serve(settings, encoding_cache_bytes=KEPT, api_keys=keys) as client:
        for key in (*KEYS, *KEYS):
            headers = {"X-API-Key": key}
            assert client.post("/classify", files={"file": digits[7]}, headers=headers).is_success
    assert [1, 1] == rows


def test_requests_for_one_picture_at_the_same_time_share_its_row(
    settings: Settings, digits: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are answered alike, and the queue is empty afterwards."""
    gate, real, batches = threading.Event(), Runtime.encode, []

    def encode(runtime: Runtime, images: Floats) -> Encoding[Floats]:
        batches.append(len(images))
        assert gate.wait(60)
        return real(runtime, images)

    monkeypatch.setattr(Runtime, "encode", encode)
    monkeypatch.setattr(Runtime, "row_s", lambda *_: math.inf)  # not on the event loop
    with serve(settings, encoding_cache_bytes=KEPT) as client, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(client.post, "/classify", files={"file": digits[7]}) for _ in range(4)]
        while "capsnet_waiting_rows 4.0" not in client.get("/metrics").text:
            pass
        gate.set()
        answers = [one.result() for one in asked]
        assert "capsnet_waiting_rows 0.0" in client.get("/metrics").text
    assert [1] == batches
    assert 1 == len({one.content for one in answers})
    assert answers[0].is_success


def test_many_pictures_at_once_are_not_kept(
    settings: Settings, digits: list[bytes], rows: list[int]
) -> None:
    """They would drive out the few that are asked for again."""
    files = [("file", digit) for digit in digits[:3]]
    with serve(settings, encoding_cache_bytes=KEPT) as client:
        for _ in range(2):
            assert client.post("/classify", files=files).is_success
    assert [3, 3] == rows
