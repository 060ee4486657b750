"""What both clients share: requests for httpx, and results of its responses."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, TypeVar

import httpx
import numpy as np

from capsnet._generated import FailedPrediction, Limits
from capsnet.answers import parse_json
from capsnet.calls import PNG, Call
from capsnet.deadline import Deadline, parse_retry_after
from capsnet.errors import DeadlineExceeded, InvalidAnswer, Problem, Unreachable
from capsnet.images import ImageLike, read_image

T = TypeVar("T")
DEFAULT_URL = "http://localhost:8000"
GRACE_S = 1.0
"""Time after the deadline, in which the service can answer that the deadline has passed."""
_BATCH_IMAGES, _BATCH_BYTES = 32, 4_000_000
"""The most images and bytes of each of many requests: the service computes these at once."""
_PART_BYTES = 250
"""The bytes of a form around each image."""
MAX_ANSWER_BYTES = 60_000_000
"""An answer may have this many bytes, inflated: several times the largest of the service."""


def client_options(url: str | None, api_key: str | None) -> dict[str, Any]:
    """The arguments of httpx's clients.

    Raises:
        ValueError: the url is not valid.
    """
    headers = {
        "User-Agent": f"capsnet-client/{version('capsnet-client')}",
        "Accept-Encoding": "identity",
    }
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    base_url = url or os.environ.get("CAPSNET_URL") or DEFAULT_URL
    if "://" not in base_url:
        base_url = f"http://{base_url}"
    try:
        return {"base_url": httpx.URL(base_url), "headers": headers}
    except httpx.InvalidURL as error:
        raise ValueError(f"{base_url} is no URL: {error}") from error


def request_arguments(call: Call[Any], deadline: Deadline) -> dict[str, Any]:
    """The arguments of httpx's `request`.

    Args:
        call: the request; its images are bytes.
        deadline: the deadline of its answer.

    Raises:
        DeadlineExceeded: no time is left.
    """
    left_s = deadline.left_s()
    headers = {
        "Accept": call.accept if call.accept != PNG else f"{PNG}, application/problem+json;q=0.1",
        "X-Request-Timeout": f"{max(left_s, 0.001):.3f}",
    }
    body: dict[str, Any] = {}
    if call.json:
        body["json"] = _write_json(call.json)
    elif len(call.images) == 1:
        body["content"] = call.images[0]
        headers["Content-Type"] = "application/octet-stream"
    elif call.images:
        body["files"] = [("file", (str(n), image)) for n, image in enumerate(call.images)]
    return {
        "method": call.verb,
        "url": call.path.lstrip("/"),
        "headers": headers,
        "params": {name: _query_value(value) for name, value in call.query.items()},
        "timeout": None,  # the client ends the whole exchange
        **body,
    }


def _query_value(value: Any) -> Any:
    """A value, or a list of several: httpx writes a list as a parameter for each of its values."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value


def _write_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A body of JSON, in which `poses` is one (D,) or several (N, D)."""
    poses = np.asarray(parameters["poses"], np.float64)
    name = "pose" if poses.ndim == 1 else "poses"
    return {name: poses.tolist(), "label": int(parameters["label"])}


async def read_content(response: httpx.Response) -> bytes:
    """The content of an answer whose headers have come.

    Raises:
        InvalidAnswer: it is larger than those of the service, or compressed more than once.
    """
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("gzip", "identity"):
        raise InvalidAnswer(f"the answer has the unknown content encoding {encoding[:50]!r}")
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) > MAX_ANSWER_BYTES:
            raise InvalidAnswer(f"the answer has more than {MAX_ANSWER_BYTES:,} bytes")
    return bytes(content)


def read_response(call: Call[T], response: httpx.Response, content: bytes) -> T:
    """The result of a call.

    Args:
        call: what was asked.
        response: its status and headers.
        content: its body.

    Raises:
        DeadlineExceeded: the service or a proxy says that time is up.
        Problem: the service says what is wrong.
        InvalidAnswer: the answer has another form.
    """
    if response.is_success:
        return call.read(content)
    retry_after_s = parse_retry_after(response.headers.get("Retry-After"))
    try:
        members = parse_json(content)
    except InvalidAnswer:
        members = None
    if not isinstance(members, dict):
        members = {
            "title": response.reason_phrase,
            "detail": content.decode(errors="replace")[:200].strip(),
        }
    members.setdefault("request_id", response.headers.get("X-Request-ID"))
    problem = Problem.from_dict({**members, "status": response.status_code}, retry_after_s)
    if problem.status == httpx.codes.GATEWAY_TIMEOUT:
        raise DeadlineExceeded(str(problem)) from problem
    raise problem


@contextmanager
def translated(url: httpx.URL) -> Iterator[None]:
    """Errors of httpx become this package's."""
    try:
        yield
    except (httpx.ConnectError, httpx.UnsupportedProtocol) as error:
        raise Unreachable(f"no connection to {url}: {error}") from error
    except (httpx.TransportError, httpx.DecodingError) as error:
        text = "the connection ended before the answer was complete"
        raise InvalidAnswer(f"{text}: {error}") from error


def form_batches(images: Iterable[ImageLike], limits: Limits) -> Iterator[list[bytes]]:
    """The images of each request, in order, as many as the service accepts.

    They are read as they are needed.
    """
    most = min(limits.images, _BATCH_IMAGES)
    most_bytes = min(limits.body_bytes, _BATCH_BYTES)
    batch: list[bytes] = []
    size = 0
    for image in map(read_image, images):
        own = len(image) + _PART_BYTES
        if batch and (len(batch) >= most or size + own > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(image)
        size += own
    if batch:
        yield batch


def only(outcomes: list[T]) -> T:
    """The outcome of a request with one image."""
    if len(outcomes) != 1 or isinstance(outcomes[0], FailedPrediction):
        raise InvalidAnswer("one image was sent, but not one prediction came back")
    return outcomes[0]
