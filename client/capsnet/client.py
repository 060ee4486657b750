"""The clients: `CapsNet` waits for its answers, and the answers of `AsyncCapsNet` are awaited."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

import httpx
import stamina
from PIL import Image
from typing_extensions import Self

from capsnet import background
from capsnet._generated import FailedPrediction, Limits, Methods, ViewMethods
from capsnet.calls import Call
from capsnet.deadline import Deadline
from capsnet.errors import DeadlineExceeded, Problem
from capsnet.images import ImageLike, is_one, read_image
from capsnet.transport import (
    GRACE_S,
    client_options,
    form_batches,
    only,
    read_content,
    read_response,
    request_arguments,
    translated,
)

T = TypeVar("T")


async def _next(batches: AsyncGenerator[T]) -> T | None:
    """The next one; None after the last."""
    return await anext(batches, None)


class _Client(Methods):
    """What both clients are made of: connections, and the coroutines that use them."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        connections: int = 4,
    ) -> None:
        self.timeout_s = timeout_s
        self.connections = connections
        self._http = httpx.AsyncClient(**client_options(url, api_key))
        self._limits: Limits | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """The service's address."""
        return str(self._http.base_url)

    async def _request_batches(
        self, images: Iterable[ImageLike], call: Call[list[T]], limits: Limits
    ) -> AsyncGenerator[list[T]]:
        """The outcomes of some images at a time, in order; a few requests are sent at once."""
        waiting: deque[asyncio.Task[list[T]]] = deque()
        try:
            batches = form_batches(images, limits)  # which reads files, so on a thread
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                waiting.append(asyncio.ensure_future(self._request_batch(batch, call)))
                if len(waiting) >= self.connections:
                    yield await waiting.popleft()
            while waiting:
                yield await waiting.popleft()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _request_batch(self, images: list[bytes], call: Call[list[T]]) -> list[T]:
        """The outcomes of the images of one request, or of its halves if it is too large."""
        try:
            return await self._request(call.with_images(images))
        except Problem as problem:
            if len(images) == 1 and problem.about_image:
                return [FailedPrediction(problem=problem)]  # type: ignore[list-item]
            if len(images) == 1 or problem.status != httpx.codes.REQUEST_ENTITY_TOO_LARGE:
                raise  # fewer have fewer pixels together
        half = len(images) // 2
        first = await self._request_batch(images[:half], call)
        return first + await self._request_batch(images[half:], call)

    async def _request(self, call: Call[T]) -> T:
        """The answer to a call, whose images are bytes; a busy service is asked again."""
        deadline = Deadline(self.timeout_s if call.timeout_s is None else call.timeout_s)
        async for attempt in stamina.retry_context(deadline.pause_s, attempts=None, timeout=None):
            with attempt, translated(self._http.base_url):
                exchange, limit_s = self._exchange(call, deadline), deadline.left_s() + GRACE_S
                try:
                    response, content = await asyncio.wait_for(exchange, limit_s)
                except asyncio.TimeoutError as error:
                    text = f"no answer within {deadline.timeout_s:g} s"
                    raise DeadlineExceeded(text) from error
                return read_response(call, response, content)
        raise AssertionError("the last attempt raises")

    async def _exchange(self, call: Call[Any], deadline: Deadline) -> tuple[httpx.Response, bytes]:
        """Send a request once. The answer, and its content."""
        async with self._http.stream(**request_arguments(call, deadline)) as response:
            return response, await read_content(response)


class CapsNet(_Client):
    """A client that waits for its answers. Threads may share it; `with` closes its connections.

    If the service is busy (429, 503), the client waits for `Retry-After` and repeats the request,
    within the deadline. After any other error, it does not repeat the request.

    Args:
        url: address of the service; by default `CAPSNET_URL`, else http://localhost:8000.
        api_key: the key, if the service needs one.
        timeout_s: deadline of each request, its repetitions included.
        connections: the number of requests at the same time, for many images.

    Raises:
        Problem: the service refused a request or could not answer it.
        DeadlineExceeded: there was no answer in time.
        Unreachable: nothing listens at the url.
        InvalidAnswer: the answer ended early, or is not that of a CapsNet service.
        ValueError: the url is not valid; raised by the constructor.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        background.wait(self._http.aclose())

    def draw(self, scale: int | None = None) -> Drawings:
        """Pictures instead of numbers: `capsnet.draw(scale=8).sweep("4.png")`.

        Args:
            scale: each pixel becomes scale x scale.
        """
        return Drawings(self, scale)

    def _send(self, call: Call[T]) -> T:
        return background.wait(self._request(call.with_images([*map(read_image, call.images)])))

    def _send_one_or_all(self, images: Any, call: Call[list[T]]) -> T | list[T]:
        if is_one(images):
            return only(self._send(call.with_images([images])))
        return list(self._send_each(images, call))

    def _send_each(self, images: Iterable[ImageLike], call: Call[list[T]]) -> Iterator[T]:
        self._limits = self._limits or self.models().limits
        batches = self._request_batches(images, call, self._limits)
        try:
            while (outcomes := background.wait(_next(batches))) is not None:
                yield from outcomes
        finally:
            background.wait(batches.aclose())


class AsyncCapsNet(_Client):
    """The same client for asyncio. Await its methods; `async with` closes its connections.

    Args:
        url: see `CapsNet`, also for the exceptions.
        api_key: see `CapsNet`.
        timeout_s: see `CapsNet`.
        connections: see `CapsNet`.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    def draw(self, scale: int | None = None) -> AsyncDrawings:
        """Pictures instead of numbers: `await capsnet.draw(scale=8).sweep("4.png")`.

        Args:
            scale: each pixel becomes scale x scale.
        """
        return AsyncDrawings(self, scale)

    async def _send(self, call: Call[T]) -> T:
        contents = [await asyncio.to_thread(read_image, image) for image in call.images]
        return await self._request(call.with_images(contents))

    async def _send_one_or_all(self, images: Any, call: Call[list[T]]) -> T | list[T]:
        if is_one(images):
            return only(await self._send(call.with_images([images])))
        return [outcome async for outcome in self._send_each(images, call)]

    async def _send_each(
        self, images: Iterable[ImageLike], call: Call[list[T]]
    ) -> AsyncIterator[T]:
        self._limits = self._limits or (await self.models()).limits
        async with aclosing(self._request_batches(images, call, self._limits)) as batches:
            async for outcomes in batches:
                for outcome in outcomes:
                    yield outcome


class Drawings(ViewMethods):
    """Pictures that the service draws; parameters are those of the client's methods."""

    def __init__(self, client: CapsNet, scale: int | None) -> None:
        self._client, self._scale = client, scale

    def _send(self, call: Call[Any]) -> Image.Image:
        return self._client._send(call.drawn(self._scale))  # noqa: SLF001  of one module


class AsyncDrawings(ViewMethods):
    """Pictures to await; parameters are those of the client's methods."""

    def __init__(self, client: AsyncCapsNet, scale: int | None) -> None:
        self._client, self._scale = client, scale

    async def _send(self, call: Call[Any]) -> Image.Image:
        return await self._client._send(call.drawn(self._scale))  # noqa: SLF001  of one module
