"""The clients: `CapsNet` waits for its answers, those of `AsyncCapsNet` are awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, overload

import httpx
import stamina
from PIL import Image
from typing_extensions import Self

from capsnet import calls
from capsnet.answers import FailedPrediction, Limits, Prediction
from capsnet.calls import Call, Fit, Polarity
from capsnet.deadline import Deadline
from capsnet.errors import Problem
from capsnet.images import ImageLike, is_one, read_image
from capsnet.transport import (
    client_options,
    failed,
    form_batches,
    only,
    read_response,
    request_arguments,
    translated,
)

P = ParamSpec("P")
T = TypeVar("T")
Client = TypeVar("Client")
F = TypeVar("F", bound=Callable[..., Any])
Outcome: TypeAlias = Prediction | FailedPrediction


def _blocking(build: Callable[P, Call[T]]) -> Callable[Concatenate[Any, P], T]:
    """A method that sends what `build` describes."""

    @wraps(build)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._send(build(*args, **kwargs))
        return result

    return _described(method, build)


def _awaited(
    build: Callable[P, Call[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A coroutine method that sends what `build` describes."""

    @wraps(build)
    async def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self._send(build(*args, **kwargs))
        return result

    return _described(method, build)


def _drawing(build: Callable[P, Call[Any]]) -> Callable[Concatenate[Any, P], Image.Image]:
    """The same of `Drawings`, which ask for pictures."""
    return _blocking(build)


def _awaited_drawing(
    build: Callable[P, Call[Any]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Image.Image]]:
    """The same of `AsyncDrawings`."""
    return _awaited(build)


def _described(method: F, build: Callable[..., Any]) -> F:
    """Have `help` show the parameters of `build` after `self`, and what becomes of its call."""
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    signature = inspect.signature(build)
    method.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[own, *signature.parameters.values()],
        return_annotation=str(signature.return_annotation).removeprefix("Call[").removesuffix("]"),
    )
    return method


class CapsNet:
    """A client that waits for its answers. Threads may share it; `with` closes its connections.

    A busy service (429, 503) is asked again after its `Retry-After`, within the deadline; nothing
    else is tried twice.

    Args:
        url: of the service; by default `CAPSNET_URL`, else http://localhost:8000.
        api_key: if the service wants one.
        timeout_s: deadline of each request, its repetitions included.
        connections: requests that are sent side by side, for many images.

    Raises:
        Problem: the service refused a request or could not answer it.
        DeadlineExceeded: there was no answer in time.
        Unreachable: nothing listens at the url.
        InvalidAnswer: the answer ended early, or is not that of a CapsNet service.
    """

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
        self._http = httpx.Client(**client_options(url, api_key))
        self._limits: Limits | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CapsNet({self.url!r})"

    @property
    def url(self) -> str:
        """The service's address."""
        return str(self._http.base_url)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    @overload
    def classify(  # type: ignore[overload-overlap]  # one path is no list of characters
        self,
        images: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        poses: bool = False,
        novelty: bool = False,
        timeout_s: float | None = None,
    ) -> Prediction: ...

    @overload
    def classify(
        self,
        images: Iterable[ImageLike],
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        poses: bool = False,
        novelty: bool = False,
        timeout_s: float | None = None,
    ) -> list[Outcome]: ...

    def classify(self, images: Any, **options: Any) -> Prediction | list[Outcome]:
        """Classify an image, or several.

        Args:
            images: a path, the bytes of a file, an open file, a Pillow image or an array, which is
                (H, W), (H, W, C) or (C, H, W), of 0 to 255 or of floats in [0, 1]; or a list of
                such, answered by a list in the same order, where an image that cannot be read has a
                `FailedPrediction`.
            model: a bundle's name; by default the service's.
            fit: how images are made the network's size.
            polarity: whether strokes are light or dark.
            poses: adds the poses of all classes.
            novelty: adds the novelty score.
            timeout_s: deadline of each request, instead of the client's.
        """
        if is_one(images):
            return only(self._send(calls.classify([read_image(images)], **options)))
        return list(self.classify_each(images, **options))

    def classify_each(self, images: Iterable[ImageLike], **options: Any) -> Iterator[Outcome]:
        """Classify any number of images, which are read while answers come: see `classify`.

        They are sent in requests of a size that the service accepts, side by side.
        """
        self._limits = self._limits or self.models().limits
        waiting: deque[Future[list[Outcome]]] = deque()
        with ThreadPoolExecutor(self.connections, "capsnet") as pool:
            try:
                for batch in form_batches(images, self._limits):
                    waiting.append(pool.submit(self._classify, batch, options))
                    if len(waiting) > self.connections:
                        yield from waiting.popleft().result()
                while waiting:
                    yield from waiting.popleft().result()
            finally:
                for one in waiting:
                    one.cancel()

    reconstruct = _blocking(calls.reconstruct)
    perturb = _blocking(calls.perturb)
    sweep = _blocking(calls.sweep)
    decode = _blocking(calls.decode)
    segment = _blocking(calls.segment)
    routing = _blocking(calls.routing)
    equivariance = _blocking(calls.equivariance)
    overlay = _blocking(calls.overlay)
    sample = _blocking(calls.sample)
    samples = _blocking(calls.samples)
    sample_of = _blocking(calls.sample_of)
    models = _blocking(calls.models)
    model = _blocking(calls.model)
    reload = _blocking(calls.reload)

    def draw(self, scale: int | None = None) -> Drawings:
        """Pictures instead of numbers: `capsnet.draw(scale=8).sweep("4.png")`.

        Args:
            scale: each pixel becomes scale x scale.
        """
        return Drawings(self, scale)

    def _classify(self, images: list[bytes], options: dict[str, Any]) -> list[Outcome]:
        try:
            return self._send(calls.classify(images, **options))
        except Problem as problem:
            return failed(images, problem)

    def _send(self, call: Call[T]) -> T:
        deadline = Deadline(self.timeout_s if call.timeout_s is None else call.timeout_s)
        for attempt in stamina.retry_context(deadline.pause_s, attempts=None, timeout=None):
            with attempt, translated(self._http.base_url, deadline.timeout_s):
                response = self._http.request(**request_arguments(call, deadline))
                return read_response(call, response)
        raise AssertionError("the last attempt raises")


class AsyncCapsNet:
    """The same client for asyncio: its methods are awaited, `async with` closes its connections.

    Args:
        url: see `CapsNet`, also for what its methods raise.
        api_key: see `CapsNet`.
        timeout_s: see `CapsNet`.
        connections: see `CapsNet`.
    """

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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncCapsNet({self.url!r})"

    @property
    def url(self) -> str:
        """The service's address."""
        return str(self._http.base_url)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    @overload
    async def classify(  # type: ignore[overload-overlap]  # one path is no list of characters
        self,
        images: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        poses: bool = False,
        novelty: bool = False,
        timeout_s: float | None = None,
    ) -> Prediction: ...

    @overload
    async def classify(
        self,
        images: Iterable[ImageLike],
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        poses: bool = False,
        novelty: bool = False,
        timeout_s: float | None = None,
    ) -> list[Outcome]: ...

    async def classify(self, images: Any, **options: Any) -> Prediction | list[Outcome]:
        """Classify an image, or several: see `CapsNet.classify`."""
        if is_one(images):
            return only(await self._send(calls.classify([read_image(images)], **options)))
        return [one async for one in self.classify_each(images, **options)]

    async def classify_each(
        self, images: Iterable[ImageLike], **options: Any
    ) -> AsyncIterator[Outcome]:
        """Classify any number of images: see `CapsNet.classify_each`."""
        self._limits = self._limits or (await self.models()).limits
        waiting: deque[asyncio.Task[list[Outcome]]] = deque()
        try:
            for batch in form_batches(images, self._limits):
                waiting.append(asyncio.ensure_future(self._classify(batch, options)))
                if len(waiting) >= self.connections:
                    for one in await waiting.popleft():
                        yield one
            while waiting:
                for one in await waiting.popleft():
                    yield one
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    reconstruct = _awaited(calls.reconstruct)
    perturb = _awaited(calls.perturb)
    sweep = _awaited(calls.sweep)
    decode = _awaited(calls.decode)
    segment = _awaited(calls.segment)
    routing = _awaited(calls.routing)
    equivariance = _awaited(calls.equivariance)
    overlay = _awaited(calls.overlay)
    sample = _awaited(calls.sample)
    samples = _awaited(calls.samples)
    sample_of = _awaited(calls.sample_of)
    models = _awaited(calls.models)
    model = _awaited(calls.model)
    reload = _awaited(calls.reload)

    def draw(self, scale: int | None = None) -> AsyncDrawings:
        """Pictures instead of numbers: see `CapsNet.draw`."""
        return AsyncDrawings(self, scale)

    async def _classify(self, images: list[bytes], options: dict[str, Any]) -> list[Outcome]:
        try:
            return await self._send(calls.classify(images, **options))
        except Problem as problem:
            return failed(images, problem)

    async def _send(self, call: Call[T]) -> T:
        deadline = Deadline(self.timeout_s if call.timeout_s is None else call.timeout_s)
        async for attempt in stamina.retry_context(deadline.pause_s, attempts=None, timeout=None):
            with attempt, translated(self._http.base_url, deadline.timeout_s):
                response = await self._http.request(**request_arguments(call, deadline))
                return read_response(call, response)
        raise AssertionError("the last attempt raises")


class Drawings:
    """Pictures that the service draws; parameters are those of the client's methods."""

    def __init__(self, client: CapsNet, scale: int | None) -> None:
        self._client, self._scale = client, scale

    reconstruct = _drawing(calls.reconstruct)
    perturb = _drawing(calls.perturb)
    sweep = _drawing(calls.sweep)
    decode = _drawing(calls.decode)
    segment = _drawing(calls.segment)
    routing = _drawing(calls.routing)
    equivariance = _drawing(calls.equivariance)

    def _send(self, call: Call[Any]) -> Image.Image:
        return self._client._send(call.drawn(self._scale))  # noqa: SLF001  of one module


class AsyncDrawings:
    """Pictures to await; parameters are those of the client's methods."""

    def __init__(self, client: AsyncCapsNet, scale: int | None) -> None:
        self._client, self._scale = client, scale

    reconstruct = _awaited_drawing(calls.reconstruct)
    perturb = _awaited_drawing(calls.perturb)
    sweep = _awaited_drawing(calls.sweep)
    decode = _awaited_drawing(calls.decode)
    segment = _awaited_drawing(calls.segment)
    routing = _awaited_drawing(calls.routing)
    equivariance = _awaited_drawing(calls.equivariance)

    async def _send(self, call: Call[Any]) -> Image.Image:
        return await self._client._send(call.drawn(self._scale))  # noqa: SLF001  of one module
