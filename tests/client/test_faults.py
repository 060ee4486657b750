"""Servers that are busy, broken or silent."""

from __future__ import annotations

import asyncio
import base64
import gzip
import inspect
import io
import json
import re
import time
from dataclasses import dataclass
from typing import Any

import pytest
from PIL import Image

from capsnet import AsyncCapsNet, CapsNet, DeadlineExceeded, InvalidAnswer, Problem, Unreachable
from capsnet._generated import Methods
from capsnet.answers import Answer, from_json, read_png
from tests.client.conftest import Serve, answer, problem
from tests.costly import png
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
    for name, method in inspect.getmembers(Methods, inspect.isfunction)
    if name != "classify_each"
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
SOME = pytest.mark.parametrize("name", ["classify", "models", "reconstruct", "segment"])
"""Methods of each kind: the same lines read what has no JSON of an answer for all methods."""


@BOTH
@SOME
def test_a_busy_service_is_asked_again(ask: Any, name: str, serve: Serve) -> None:
    """After `Retry-After`, and then the caller learns what the next answer was."""
    busy = [problem(status, "busy", "Retry-After: 0") for status in (429, 503)]
    script = serve(*busy, problem(422, "invalid-parameter"))
    with pytest.raises(Problem, match="In words: what is wrong") as raised:
        ask(script.url, name)
    problem_ = raised.value
    assert (422, "dim", "7c1d0f") == (problem_.status, problem_.parameter, problem_.request_id)
    assert 3 == len(script.requests)


@BOTH
@SOME
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
@pytest.mark.parametrize("body", [b"null", b"<html>"])
def test_another_kind_of_answer_is_invalid(ask: Any, name: str, body: bytes, serve: Serve) -> None:
    """What is not as documented is never handed on half read."""
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
def test_json_of_too_many_values_is_refused_before_it_is_parsed(ask: Any, serve: Serve) -> None:
    """Sixty kilobytes, compressed, become sixty megabytes, and more than a gigabyte of objects."""
    body = b"[" + b"{}," * 5_000_000 + b"{}]"
    said = answer(200, gzip.compress(body, 1), "Content-Encoding: gzip")
    with pytest.raises(InvalidAnswer, match="more than 3,000,000 values"):
        ask(serve(said).url)


@dataclass
class Pair(Answer):
    """An answer with two pictures."""

    first: Image.Image
    second: Image.Image


def test_pictures_are_bounded_by_their_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes announce gigabytes: nothing is decoded, of one picture or of several."""
    with pytest.raises(InvalidAnswer, match="more than 100,000,000 pixels"):
        read_png(png(10_001, 10_001))
    monkeypatch.setattr("capsnet.answers.MAX_PIXELS", 150)
    file = io.BytesIO()
    Image.new("L", (10, 10)).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    with pytest.raises(InvalidAnswer):
        from_json(Pair, {"first": url, "second": url})
    monkeypatch.setattr("capsnet.answers.MAX_PIXELS", 200)
    assert (10, 10) == from_json(Pair, {"first": url, "second": url}).second.size


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
