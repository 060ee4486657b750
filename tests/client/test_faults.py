"""Servers that are busy, broken or silent."""

from __future__ import annotations

import asyncio
import base64
import gzip
import inspect
import io
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from capsnet import AsyncCapsNet, CapsNet, DeadlineExceeded, InvalidAnswer, Problem, Unreachable
from capsnet._generated import Methods
from capsnet.answers import Answer, from_json, read_png
from tests.attack.files import square_png
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
@SOME
def test_an_answer_that_is_no_json_is_invalid(ask: Any, name: str, serve: Serve) -> None:
    """Such as a page of a proxy."""
    with pytest.raises(InvalidAnswer):
        ask(serve(answer(200, b"<html>")).url, name)


@BOTH
@EVERY
@pytest.mark.parametrize("body", [b"null", b'{"model": 3}'])
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


_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n"
_NAMELESS = b"\x1f\x8b\x08\x08" + bytes(6)
"""The head of a gzip file whose name follows."""


@BOTH
@pytest.mark.parametrize(
    ("head", "piece", "pause_s"),
    [
        pytest.param(_OK + b"X: ", b"a", 0.05, id="a header"),
        pytest.param(_CHUNKED + b"\r\n5;", b"a", 0.05, id="a chunk's extension"),
        pytest.param(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 9, 0.0, id="early hints"),
        pytest.param(
            _CHUNKED + b"Content-Encoding: gzip\r\n\r\na\r\n" + _NAMELESS + b"\r\n",
            b"1000\r\n" + b"a" * 4096 + b"\r\n",
            0.0,
            id="a gzip file's name",
        ),
        pytest.param(_OK + b"Content-Length: 999999\r\n\r\n", b"a", 0.05, id="a body"),
    ],
)
def test_what_has_no_end_ends_at_the_deadline(
    ask: Any, head: bytes, piece: bytes, pause_s: float, serve_endless: Callable[..., str]
) -> None:
    """Each piece comes in time, and all of them never."""
    url, began = serve_endless(head, piece, pause_s), time.monotonic()
    with pytest.raises((DeadlineExceeded, InvalidAnswer)):
        ask(url, timeout_s=0.5)
    assert time.monotonic() - began < 5


@BOTH
@pytest.mark.parametrize("encoding", ["gzip, gzip, gzip", "gzip, gzip", "br", "deflate"])
def test_other_encodings_than_one_layer_of_gzip_are_refused(
    ask: Any, encoding: str, serve: Serve
) -> None:
    """Three layers make gigabytes of 300 bytes before anybody can count them."""
    body = bytes(3_000_000)
    for _ in encoding.split(","):
        body = gzip.compress(body)
    with pytest.raises(InvalidAnswer, match="unknown content encoding"):
        ask(serve(answer(200, body, f"Content-Encoding: {encoding}")).url)


@BOTH
def test_a_compressed_answer_is_read(ask: Any, serve: Serve) -> None:
    """A proxy may compress; what ended early is never handed on half read."""
    body = MODELS.partition(b"\r\n\r\n")[2]
    packed = gzip.compress(body)
    found = ask(serve(answer(200, packed, "Content-Encoding: gzip")).url)
    assert 5 == found.limits.images
    with pytest.raises(InvalidAnswer, match="ended early"):
        ask(serve(answer(200, packed[:-9], "Content-Encoding: gzip")).url)
    with pytest.raises(InvalidAnswer, match="not compressed"):
        ask(serve(answer(200, body, "Content-Encoding: gzip")).url)


@BOTH
def test_json_of_too_many_values_is_refused_before_it_is_parsed(ask: Any, serve: Serve) -> None:
    """Sixty kilobytes, compressed, become sixty megabytes, and more than a gigabyte of objects."""
    body = b"[" + b"{}," * 5_000_000 + b"{}]"
    said = answer(200, gzip.compress(body, 1), "Content-Encoding: gzip")
    with pytest.raises(InvalidAnswer, match="more than 3,000,000 values"):
        ask(serve(said).url)


@pytest.mark.parametrize("value", ["Fri, 31 Dec 99999999999 23:59:59 GMT", "9" * 400, "9" * 5000])
def test_a_pause_of_ages_is_a_problem_like_any_other(value: str, serve: Serve) -> None:
    """Whatever `Retry-After` says, the caller learns that the service is busy."""
    with pytest.raises(Problem) as raised:
        call(serve(problem(429, "busy", f"Retry-After: {value}")).url, timeout_s=0.5)
    assert 429 == raised.value.status


@dataclass
class Pair(Answer):
    """An answer with two pictures."""

    first: Image.Image
    second: Image.Image


def test_pictures_are_bounded_by_their_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes announce gigabytes: nothing is decoded, of one picture or of several."""
    with pytest.raises(InvalidAnswer, match="more than 100,000,000 pixels"):
        read_png(square_png(10_001))
    monkeypatch.setattr("capsnet.answers.MAX_PIXELS", 150)
    file = io.BytesIO()
    Image.new("L", (10, 10)).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    with pytest.raises(InvalidAnswer):
        from_json(Pair, {"first": url, "second": url})
    monkeypatch.setattr("capsnet.answers.MAX_PIXELS", 200)
    assert (10, 10) == from_json(Pair, {"first": url, "second": url}).second.size


def test_files_are_read_beside_the_event_loop(tmp_path: Path, serve: Serve) -> None:
    """A file that takes long holds up no other task: here a pipe that is written later."""
    os.mkfifo(tmp_path / "pipe")
    script = serve(problem(422, "invalid-parameter"))

    async def write() -> None:
        await asyncio.sleep(0.1)  # the loop turns while the pipe is opened for reading
        await asyncio.to_thread((tmp_path / "pipe").write_bytes, IMAGE)

    async def run() -> None:
        async with AsyncCapsNet(script.url) as client:
            writing = asyncio.ensure_future(write())
            with pytest.raises(Problem):
                await client.reconstruct(tmp_path / "pipe")
            await writing

    asyncio.run(run())


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
