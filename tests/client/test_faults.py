"""Servers that are busy, broken or silent."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import io
import json
import re
import time
from typing import Any

import pytest
from PIL import Image

from capsnet import AsyncCapsNet, CapsNet, DeadlineExceeded, InvalidAnswer, Problem, Unreachable
from capsnet._generated import CapsNetMethods
from capsnet.answers import read_png
from tests.client.conftest import Serve, answer, problem
from tests.processes import free_port

MODELS = answer(
    200,
    json.dumps(
        {"provider": "CPU", "limits": {"images": 5, "body_bytes": 9999}, "models": []}
    ).encode(),
)
IMAGE = b"\x89PNG"
LEAST = {
    "ImageLike": IMAGE,
    "Any": IMAGE,
    "ArrayLike": [0.0, 0.1],
    "int": 3,
    "float": 0.1,
    "str": "a",
}
CALLS: dict[str, list[Any]] = {
    name: [
        LEAST.get(one.annotation, IMAGE)
        for one in inspect.signature(method).parameters.values()
        if one.default is one.empty and one.name != "self"
    ]
    for name, method in vars(CapsNetMethods).items()
    if not name.startswith("_") and name != "classify_each"
}
"""Every method, with what it needs at least."""


def call(url: str, name: str = "models", **options: Any) -> Any:
    """One method of the client that waits."""
    with CapsNet(url) as client:
        return getattr(client, name)(*CALLS[name], **options)


def await_call(url: str, name: str = "models", **options: Any) -> Any:
    """The same method of the other client."""

    async def run() -> Any:
        async with AsyncCapsNet(url) as client:
            return await getattr(client, name)(*CALLS[name], **options)

    return asyncio.run(run())


BOTH = pytest.mark.parametrize("ask", [call, await_call])
EVERY = pytest.mark.parametrize("name", CALLS)


@pytest.mark.parametrize("ask", [call, await_call])
def test_a_deadline_that_the_service_tells_is_the_client_s(ask: Any, serve: Serve) -> None:
    """One exception for both; it keeps what the service says."""
    with pytest.raises(DeadlineExceeded, match="what is wrong"):
        ask(serve(problem(504, "too-late")).url)


@BOTH
@EVERY
def test_a_busy_service_is_asked_again(ask: Any, name: str, serve: Serve) -> None:
    """After `Retry-After`, and then the caller learns what the next answer was."""
    busy = [problem(status, "busy", "Retry-After: 0") for status in (429, 503)]
    script = serve(*busy, problem(422, "invalid-parameter"))
    with pytest.raises(Problem) as raised:
        ask(script.url, name)
    assert (422, 3) == (raised.value.status, len(script.requests))


@BOTH
@EVERY
def test_a_problem_is_an_exception(ask: Any, name: str, serve: Serve) -> None:
    """With its type, parameter and request id; nothing but 429 and 503 is tried again."""
    script = serve(problem(500, "internal-error", "Retry-After: 0"))
    with pytest.raises(Problem, match="In words: what is wrong") as raised:
        ask(script.url, name)
    error = raised.value
    assert ("urn:capsnet:problem:internal-error", "dim", "7c1d0f", 500) == (
        error.type,
        error.parameter,
        error.request_id,
        error.status,
    )
    assert 1 == len(script.requests)


@BOTH
@EVERY
@pytest.mark.parametrize(
    ("said", "message"),
    [(answer(200, b'{"provider": "CPU"}')[:-5], "ended before"), (b"", ".")],
    ids=["half a body", "no answer at all"],
)
def test_a_broken_answer_is_invalid(
    ask: Any, name: str, said: bytes, message: str, serve: Serve
) -> None:
    """It is not tried again: the work may have been done."""
    script = serve(said)
    with pytest.raises(InvalidAnswer, match=message):
        ask(script.url, name)
    assert 1 == len(script.requests)


@BOTH
@EVERY
@pytest.mark.parametrize("body", [b"<html>", b"null", b'{"model": 3}'])
def test_another_kind_of_answer_is_invalid(ask: Any, name: str, body: bytes, serve: Serve) -> None:
    """What is not as documented is never handed on half read; `model` gives any object."""
    if name == "model" and body.startswith(b"{"):
        pytest.skip("a manifest is an object, and this is one")
    with pytest.raises(InvalidAnswer):
        ask(serve(answer(200, body)).url, name)


@BOTH
def test_silence_ends_at_the_deadline(ask: Any, serve: Serve) -> None:
    """A server that says nothing holds nobody longer than the deadline and its grace."""
    script, began = serve(), time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.2 s"):
        ask(script.url, timeout_s=0.2)
    assert time.monotonic() - began < 5


@BOTH
def test_nothing_that_listens_is_unreachable(ask: Any) -> None:
    """The error names the address."""
    port = free_port()
    with pytest.raises(Unreachable, match=str(port)):
        ask(f"http://127.0.0.1:{port}")


@BOTH
def test_a_pause_beyond_the_deadline_is_not_taken(ask: Any, serve: Serve) -> None:
    """Who would be answered too late learns at once that the service is busy."""
    script, began = serve(problem(429, "busy", "Retry-After: 60")), time.monotonic()
    with pytest.raises(Problem) as raised:
        ask(script.url, timeout_s=20)
    assert (429, 60) == (raised.value.status, raised.value.retry_after_s)
    assert time.monotonic() - began < 10


@BOTH
def test_each_attempt_sends_the_time_that_is_left(ask: Any, serve: Serve) -> None:
    """`X-Request-Timeout` shrinks by what was waited."""
    script = serve(problem(503, "unavailable", "Retry-After: 1"), MODELS)
    ask(script.url, timeout_s=9)
    first, second = (
        float(re.findall(r"x-request-timeout: (.*)", one)[0]) for one in script.requests
    )
    assert 8 < first <= 9
    assert second <= first - 1


@BOTH
@pytest.mark.parametrize(
    ("said", "status", "text"),
    [
        pytest.param(
            answer(502, b"<h1>Bad Gateway</h1>", "Content-Type: text/html"),
            502,
            "Bad Gateway",
            id="a proxy's page",
        ),
        pytest.param(answer(400, 100_000 * b"["), 400, ".", id="nested deeply"),
        pytest.param(answer(400, b'{"title": {"a": 1}, "detail": [2]}'), 400, ".", id="no texts"),
    ],
)
def test_a_problem_of_another_form_is_a_problem(
    ask: Any, said: bytes, status: int, text: str, serve: Serve
) -> None:
    """A gateway knows nothing of problem details; whatever a server says is shown as text."""
    with pytest.raises(Problem, match=text) as raised:
        ask(serve(said).url)
    assert (status, "about:blank") == (raised.value.status, raised.value.type)


def test_members_of_later_services_are_left_out(serve: Serve) -> None:
    """An answer with more than this version knows is read."""
    body = {"provider": "CPU", "limits": {"images": 5, "body_bytes": 9, "new": 1}, "models": []}
    found = call(serve(answer(200, json.dumps({**body, "new": {}}).encode())).url)
    assert 5 == found.limits.images


@BOTH
def test_an_answer_without_end_is_refused(
    ask: Any, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes is counted, also of a few bytes that become many."""
    monkeypatch.setattr("capsnet.transport.MAX_ANSWER_BYTES", 1_000_000)
    packed = gzip.compress(bytes(10_000_000))
    for body, *headers in ((bytes(2_000_000),), (packed, "Content-Encoding: gzip")):
        with pytest.raises(InvalidAnswer, match="more than 1,000,000 bytes"):
            ask(serve(answer(200, body, *headers)).url)


@BOTH
def test_a_redirection_is_not_followed(ask: Any, serve: Serve) -> None:
    """The key and the image go to the server that the caller named alone."""
    other = serve(MODELS)
    with pytest.raises(Problem) as raised:
        ask(serve(answer(307, b"", f"Location: {other.url}/models")).url)
    assert (307, []) == (raised.value.status, other.requests)


def test_pictures_are_png_alone() -> None:
    """Pillow would start Ghostscript for another format."""
    file = io.BytesIO()
    Image.new("L", (9, 9)).save(file, "EPS")
    with pytest.raises(InvalidAnswer):
        read_png(file.getvalue())
