"""What both clients do alike: requests for httpx, and results of its responses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, TypeVar

import httpx

from capsnet._generated import FailedPrediction, Limits
from capsnet.calls import PNG, Call
from capsnet.deadline import Deadline, parse_retry_after
from capsnet.errors import DeadlineExceeded, InvalidAnswer, Problem, Unreachable
from capsnet.images import ImageLike, read_image

T = TypeVar("T")
DEFAULT_URL = "http://localhost:8000"
_GRACE_S = 1.0
"""After the deadline, for the service's own answer that it has passed."""
_BATCH_IMAGES, _BATCH_BYTES = 32, 4_000_000
"""Of one request of many: what the service computes at once."""
_PART_BYTES = 250
"""Of a form, around each image."""
MAX_ANSWER_BYTES = 200_000_000
"""Several times the largest answer of the service."""


def client_options(url: str | None, api_key: str | None) -> dict[str, Any]:
    """What httpx's clients are made with.

    Raises:
        ValueError: the url is none.
    """
    headers = {"User-Agent": f"capsnet-client/{version('capsnet-client')}"}
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
    """What httpx's `request` takes.

    Raises:
        DeadlineExceeded: no time is left.
    """
    left_s = deadline.left_s()
    body = dict(call.body)
    headers = {
        **body.pop("headers", {}),
        "Accept": call.accept if call.accept != PNG else f"{PNG}, application/problem+json;q=0.1",
        "X-Request-Timeout": f"{max(left_s, 0.001):.3f}",
    }
    timeout = httpx.Timeout(left_s + _GRACE_S)
    arguments = {"method": call.method, "url": call.path.lstrip("/"), "headers": headers}
    return {**arguments, "params": call.query, "timeout": timeout, **body}


def append(content: bytearray, part: bytes, deadline: Deadline) -> None:
    """Add what came of an answer.

    Raises:
        InvalidAnswer: it is larger than those of the service.
        DeadlineExceeded: it still comes after the deadline.
    """
    if content:
        deadline.left_s()
    content += part
    if len(content) > MAX_ANSWER_BYTES:
        raise InvalidAnswer(f"the answer has more than {MAX_ANSWER_BYTES:,} bytes")


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
        members = json.loads(content)
    except (RecursionError, ValueError):
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
def translated(url: httpx.URL, timeout_s: float) -> Iterator[None]:
    """Errors of httpx become this package's."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise DeadlineExceeded(f"no answer within {timeout_s:g} s") from error
    except (httpx.ConnectError, httpx.UnsupportedProtocol) as error:
        raise Unreachable(f"no connection to {url}: {error}") from error
    except (httpx.TransportError, httpx.DecodingError) as error:
        text = "the connection ended before the answer was complete"
        raise InvalidAnswer(f"{text}: {error}") from error


def form_batches(images: Iterable[ImageLike], limits: Limits) -> Iterator[list[bytes]]:
    """The images of each request, in order, as many as the service accepts."""
    most = min(limits.images, _BATCH_IMAGES)
    most_bytes = min(limits.body_bytes, _BATCH_BYTES)
    batch: list[bytes] = []
    size = 0
    for image in map(read_image, images):
        if batch and (len(batch) == most or size + len(image) + _PART_BYTES > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(image)
        size += len(image) + _PART_BYTES
    if batch:
        yield batch


def only(outcomes: list[T]) -> T:
    """The outcome of a request with one image."""
    if len(outcomes) != 1 or isinstance(outcomes[0], FailedPrediction):
        raise InvalidAnswer("one image was sent, but not one prediction came back")
    return outcomes[0]


def too_large_together(images: list[bytes], problem: Problem) -> bool:
    """Whether fewer of a request's images may be accepted: the service limits their pixels."""
    return len(images) > 1 and problem.status == httpx.codes.REQUEST_ENTITY_TOO_LARGE


def failed(images: list[bytes], problem: Problem) -> list[Any]:
    """What takes the place of an image that was alone in its request and is at fault.

    Raises:
        Problem: the request as a whole is at fault.
    """
    if len(images) > 1 or not problem.about_image:
        raise problem
    return [FailedPrediction(problem=problem)]
