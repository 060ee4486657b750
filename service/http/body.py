"""Limit the bytes and the seconds of a request's body."""

from __future__ import annotations

import asyncio
from collections.abc import Container

from starlette.types import Message, Receive

from service.admission import NO_ROOM, Claim
from service.errors import Busy, TooLarge, UploadTimeout
from service.settings import Settings

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
            Whether that is undone; False if anything else cancelled too.
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
