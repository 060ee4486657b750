from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from fastapi.testclient import TestClient

from model.bundle import Bundle
from model.runtime import Runtime
from service.app import create_app
from service.inference.engine import open_engine
from service.settings import Settings

ID = "X-Request-ID"


class BrokenDecoder(Runtime):
    """Reads digits but cannot draw them."""

    def decode(self, *_: object) -> NoReturn:
        """Fail with a message that is nobody's business."""
        raise RuntimeError("the secret of the decoder")


class BrokenEncoder(Runtime):
    """Cannot even read digits."""

    def encode(self, *_: object) -> NoReturn:
        """Fail with a message that is nobody's business."""
        raise RuntimeError("the secret of the encoder")


@pytest.fixture(scope="module", params=[BrokenEncoder, BrokenDecoder])
def broken(
    request: pytest.FixtureRequest, bundle_path: Path, settings: Settings
) -> Iterator[TestClient]:
    """A service whose network fails at /reconstruct."""
    runtime = request.param(Bundle.open(bundle_path), device="cpu", threads=1)
    app = create_app(settings, open_engine({"mnist": runtime}))
    with TestClient(app, raise_server_exceptions=False, base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize("sent", ["a", "2024-05-01_10.30", "x" * 64])
def test_a_well_formed_id_is_echoed(sent: str, client: TestClient) -> None:
    """Who brings an id finds it in the answer."""
    assert sent == client.get("/livez", headers={ID: sent}).headers[ID]


@pytest.mark.parametrize("sent", ["", "x" * 65, "a b", "a/b", 'a"b', "a\tb", "é".encode()])
def test_a_malformed_id_is_replaced(sent: str | bytes, client: TestClient) -> None:
    """What could spoil a log line or a header does not come back."""
    given = client.get("/livez", headers={ID: sent}).headers[ID]
    assert 32 == len(given)
    assert given.isalnum()


def test_a_failure_of_the_service_is_a_problem(
    broken: TestClient, digits: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """A fault that no one foresaw is a 500 with the request's id, and says nothing of its cause."""
    answer = broken.post("/reconstruct", files={"file": digits[7]}, headers={ID: "mine"})
    problem = answer.json()
    expected = (500, "application/problem+json", "urn:capsnet:problem:internal-error")
    assert expected == (answer.status_code, answer.headers["content-type"], problem["type"])
    assert ("mine", "mine") == (answer.headers[ID], problem["request_id"])
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    assert "the secret of the" in caplog.text


def test_an_unforeseen_failure_is_logged_under_its_id(
    client: TestClient,
    digits: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who reports the id of a 500 can be helped: the log has it, with the cause."""
    monkeypatch.setattr("model.views.reconstruct.draw_image", lambda *_args, **_more: 1 / 0)
    headers = {ID: "mine", "accept": "image/png"}
    with caplog.at_level(logging.ERROR):
        answer = client.post("/reconstruct", files={"file": digits[7]}, headers=headers)
    assert 500 == answer.status_code
    (record,) = [record for record in caplog.records if "mine" in record.getMessage()]
    assert record.exc_info is not None
    assert ZeroDivisionError is record.exc_info[0]
