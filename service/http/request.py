"""A request as a handler receives it: its body, what it may compute, and its deadline."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Container
from difflib import get_close_matches
from functools import cached_property

import fastapi
from pydantic import ValidationError
from starlette.types import Message, Receive, Scope, Send

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.views.net import require
from model.views.view import describe_fault
from service.admission import NO_ROOM, Claim
from service.errors import (
    Busy,
    InvalidParameter,
    MalformedRequest,
    Problem,
    TooLarge,
    UnknownModel,
    UploadTimeout,
)
from service.http.context import Context
from service.inference.engine import Engine, ServedNet
from service.settings import Settings

TIMEOUT_HEADER = "X-Request-Timeout"
MIN_BYTES, WINDOW_S = 10_000, 10.0
"""At least this many bytes of an unfinished body must arrive in this many seconds, else 408."""
ARRIVES_WHOLE = "capsnet.arrives_whole"
"""The extension (ASGI) of a request whose body is seen only once all of it is there."""
MOMENT_S = 0.2
"""gRPC delivers a message only when it is complete. While one arrives, it counts as 0 bytes for
this long, and after that as `max_body_bytes`.
"""
WATCH_AFTER_S = 0.02
"""After a request has been handled for this long, its client's connection is watched."""


class Body:
    """The body of one request as it arrives, and then whether its client is still there.

    The client is watched from WATCH_AFTER_S on: what is answered by then needs no watching.

    Args:
        claim: counts what has arrived.
        settings: limit its size and the time for it to arrive.
        receive: gives the next part.
        announced: the value of Content-Length.
        extensions: of the request: see `ARRIVES_WHOLE`.
    """

    def __init__(
        self,
        claim: Claim,
        settings: Settings,
        receive: Receive,
        announced: bytes,
        extensions: Container[str] = (),
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._loop = task, task.get_loop()
        self._claim = claim
        self._settings = settings
        self._receive = receive
        self._receive_first = self._receive_whole if ARRIVES_WHOLE in extensions else receive
        # As few digits as any limit has: Python reads no number of thousands.
        self._announced = int(announced.lstrip(b"0")[:20] or 0) if announced.isdigit() else 0
        self._arrived = 0
        self._deadline = self._loop.time() + settings.upload_timeout_s
        self._window_ends = self._loop.time() + WINDOW_S
        self._in_window = 0
        self._is_complete = False
        self._watching: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._abandoned = False

    async def receive(self) -> Message:
        """The next part of the body.

        Raises:
            TooLarge, UploadTimeout: it is over a limit of one body.
            Busy: it does not fit next to the others.
        """
        self._check(self._announced)
        message = await (self._receive() if self._is_complete else self._receive_in_time())
        size = len(message.get("body", b""))
        self._arrived += size
        self._check(self._arrived)
        self._claim.unfinished = bool(message.get("more_body"))
        self._claim.hold(size)
        if not (self._is_complete or self._claim.unfinished):
            self._is_complete = True
            self._watching = self._loop.call_later(WATCH_AFTER_S, self._begin_watching)
        return message

    def absorb_cancellation(self) -> bool:
        """Undo the cancellation if the client's leaving caused it.

        Returns:
            True if only the client's leaving cancelled this task, which then goes on; else False.
        """
        return self._abandoned and not self._task.uncancel()

    def stop_watching(self) -> None:
        """Stop watching the client, because its answer begins or it gets none."""
        if self._watching:
            self._watching.cancel()
            self._watching = None  # its traceback would hold this body until it is collected

    async def _receive_in_time(self) -> Message:
        claim, message = self._claim, None
        try:
            async with asyncio.timeout_at(min(self._deadline, self._window_ends)) as claim.waiting:
                message = None if claim.refused else await self._receive_first()
        except TimeoutError as error:
            if not claim.refused:
                raise UploadTimeout(self._slowness()) from error
        finally:
            claim.waiting = None
        if message is None or claim.refused:
            raise Busy(NO_ROOM, retry_after_s=1)
        self._in_window += len(message.get("body", b""))
        if self._in_window >= MIN_BYTES:
            self._in_window, self._window_ends = 0, self._loop.time() + WINDOW_S
        return message

    async def _receive_whole(self) -> Message:
        receiving = asyncio.ensure_future(self._receive())
        try:
            await asyncio.wait([receiving], timeout=MOMENT_S)
            if not receiving.done():
                # Whole messages that never arrive leave half of the budget to bodies that do.
                self._claim.unfinished = True
                spare = self._settings.max_waiting_bytes // 2
                self._claim.hold(self._settings.max_body_bytes, spare_bytes=spare)
            return await receiving
        finally:
            receiving.cancel()
            self._claim.release_bytes()

    def _slowness(self) -> str:
        if self._loop.time() >= self._deadline:
            return f"the body did not arrive within {self._settings.upload_timeout_s:g} s"
        return f"fewer than {MIN_BYTES:,} bytes of the body arrived within {WINDOW_S:g} s"

    def _check(self, size: int) -> None:
        if size > self._settings.max_body_bytes:
            raise TooLarge(f"the request body exceeds {self._settings.max_body_bytes:,} bytes")

    def _begin_watching(self) -> None:
        self._watching = self._loop.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._abandoned = True
        self._task.cancel()


class Request(fastapi.Request):
    """A request, which is admitted and charged before it computes.

    Args:
        scope: ASGI's, and so are the next two.
        receive: gives the body.
        send: takes the answer.
        max_cost: the most rows that a request to this route may cost.
    """

    engine: Engine
    """What computes it, whatever is loaded meanwhile; set only where the route has `needs_models`.
    """
    media_type = ""
    """The media type of the answer, negotiated from `Accept`, on routes that negotiate."""
    timeout: asyncio.Timeout | None = None
    """Ends the handling of the request at its deadline."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, max_cost: int = 0) -> None:
        super().__init__(scope, receive, send)
        self.context: Context = scope["app"].state
        self.claim: Claim = scope["state"]["claim"]
        self._max_cost = max_cost

    @cached_property
    def limit_s(self) -> float:
        """The seconds from the end of the body until the answer has to be ready.

        Raises:
            InvalidParameter: the client asks for none.
        """
        longest_s = self.context.settings.request_timeout_s
        try:
            wanted_s = float(self.headers.get(TIMEOUT_HEADER, longest_s))
        except ValueError:
            wanted_s = math.nan
        if not 0 < wanted_s < math.inf:
            text = f"{TIMEOUT_HEADER} is a positive number of seconds"
            raise InvalidParameter(text, parameter=TIMEOUT_HEADER)
        return min(wanted_s, longest_s)

    async def body(self) -> bytes:
        """Read the whole body, once: it is not kept.

        The deadline starts at its end: the upload has its own time limit.
        """
        content = b"".join([part async for part in self.stream()])
        self.start_deadline()
        return content

    def start_deadline(self) -> None:
        """Let the time run, for the request and its rows, if the route has a limit."""
        if self.timeout:
            limit_s = self.limit_s
            self.claim.deadline = time.monotonic() + limit_s
            self.timeout.reschedule(asyncio.get_running_loop().time() + limit_s)

    def admit(self, rows: int, *, files: int = 0, price: int = 1, image_price: int = 1) -> None:
        """Admit the request with the price of its rows, before files are decoded.

        Args:
            rows: of the request.
            files: that are decoded.
            price: of one row: see `Engine.price`.
            image_price: how many rows a row costs more, where images are larger: see `Claim`.

        Raises:
            Busy, RateLimited, TooLate: see `Claim.admit`.
            ValueError: the route declares less, by which the limit of admission is chosen.
        """
        if rows > self._max_cost:
            raise ValueError(f"the route declares at most {self._max_cost} rows, not {rows}")
        self.claim.image_price = image_price
        self.claim.admit(rows * price * image_price, files=files)

    def manifest(self, model: str | None, *, needs: Offer | None = None) -> Manifest:
        """The manifest of a loaded bundle, or of the default one.

        Raises:
            UnknownModel: it is not loaded.
            NotOffered: its network cannot do what is needed.
        """
        manifests = self.engine.manifests
        name = model or self.engine.default_model(self.context.settings.default_model)
        if name not in manifests:
            near = get_close_matches(name, manifests, 1)
            hint = "".join(f". Did you mean {known!r}?" for known in near)
            loaded = ", ".join(sorted(manifests))
            raise UnknownModel(f"{name!r} is not loaded; loaded: {loaded}{hint}", parameter="model")
        require(manifests[name], needs)
        return manifests[name]

    def net(self, manifest: Manifest) -> ServedNet:
        """The network of a manifest, for this request's rows."""
        return ServedNet(manifest, self.engine, self.claim, self.context.slow)


def invalid(error: ValidationError) -> Problem:
    """Make a problem of the first error in a query or a body."""
    fault = describe_fault(error)
    if fault.parameter is None:  # the body as a whole: no JSON, or not an object
        return MalformedRequest(f"the body: {fault.detail}")
    return fault
