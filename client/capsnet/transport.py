"""What both clients share: requests for httpx, and results of its responses."""

from __future__ import annotations

import os
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
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
from capsnet.images import ImageLike, read_image, read_on_thread

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


def client_options(url: str | None, api_key: str | None, *, bulk: bool = False) -> dict[str, Any]:
    """The arguments of httpx's clients.

    Raises:
        ValueError: the url is not valid.
    """
    headers = {
        "User-Agent": f"capsnet-client/{version('capsnet-client')}",
        "Accept-Encoding": "gzip",  # which `Content` inflates within bounds
    }
    if bulk:
        headers["X-Priority"] = "bulk"
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
        "timeout": httpx.Timeout(left_s + GRACE_S),
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


class Content:
    """The content of an answer, which may be compressed once with gzip.

    Args:
        response: its headers have come.
        deadline: when the rest has to be there.

    Raises:
        InvalidAnswer: it has another encoding, or several.
    """

    def __init__(self, response: httpx.Response, deadline: Deadline) -> None:
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("gzip", "identity"):
            raise InvalidAnswer(f"the answer has the unknown content encoding {encoding[:50]!r}")
        self._inflater = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
        self._deadline = deadline
        self._content = bytearray()
        self._received = 0

    def append(self, part: bytes) -> None:
        """Add a part of the answer.

        Raises:
            InvalidAnswer: it is larger than those of the service, or not compressed as it says.
            DeadlineExceeded: parts still arrive after the deadline.
        """
        if self._received:
            self._deadline.left_s()
        self._received += len(part)
        if self._inflater:
            most = MAX_ANSWER_BYTES - len(self._content) + 1
            try:
                part = self._inflater.decompress(part, most)
            except zlib.error as error:
                raise InvalidAnswer(f"the answer is not compressed with gzip: {error}") from error
        self._content += part
        if max(self._received, len(self._content)) > MAX_ANSWER_BYTES:
            raise InvalidAnswer(f"the answer has more than {MAX_ANSWER_BYTES:,} bytes")

    def read(self) -> bytes:
        """The whole content.

        Raises:
            InvalidAnswer: it ended early.
        """
        if self._inflater and self._received and not self._inflater.eof:
            raise InvalidAnswer("the compressed answer ended early")
        return bytes(self._content)


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


class Batches:
    """Collects the images of requests, in order, as many for each as the service accepts.

    Args:
        limits: of the service.
    """

    def __init__(self, limits: Limits) -> None:
        self._most = min(limits.images, _BATCH_IMAGES)
        self._most_bytes = min(limits.body_bytes, _BATCH_BYTES)
        self._batch: list[bytes] = []
        self._size = 0

    def add(self, image: bytes) -> list[bytes]:
        """Add an image. Return the batch before it if that is full, else an empty list."""
        size = len(image) + _PART_BYTES
        is_full = len(self._batch) >= self._most or self._size + size > self._most_bytes
        full = self.take() if is_full else []
        self._batch.append(image)
        self._size += size
        return full

    def take(self) -> list[bytes]:
        """Return the images that were collected, and begin again."""
        batch, self._batch, self._size = self._batch, [], 0
        return batch


def form_batches(images: Iterable[ImageLike], limits: Limits) -> Iterator[list[bytes]]:
    """The images of each request, which are read as they are needed."""
    batches = Batches(limits)
    for image in images:
        if batch := batches.add(read_image(image)):
            yield batch
    if batch := batches.take():
        yield batch


async def form_batches_on_threads(
    images: Iterable[ImageLike], limits: Limits
) -> AsyncIterator[list[bytes]]:
    """The same, with files that are read on a thread, so that the event loop keeps running."""
    batches = Batches(limits)
    for image in images:
        if batch := batches.add(await read_on_thread(image)):
            yield batch
    if batch := batches.take():
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
    """The outcome of an image that is at fault, and was alone in its request.

    Raises:
        Problem: the request as a whole is at fault.
    """
    if len(images) > 1 or not problem.about_image:
        raise problem
    return [FailedPrediction(problem=problem)]
