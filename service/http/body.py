"""Limit the bytes, the seconds and the number of request bodies."""

from __future__ import annotations

import asyncio
import ctypes
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message, Receive

from service.errors import Busy, TooLarge, UploadTimeout
from service.settings import Settings

LEAST_BYTES, WINDOW_S = 10_000, 10.0
"""At least this many bytes of an unfinished body must arrive in this many seconds, else 408."""
ARRIVES_WHOLE = "capsnet.arrives_whole"
"""The extension (ASGI) of a request whose body is seen only once all of it is there."""
MOMENT_S = 0.2
"""gRPC delivers a message only when it is complete. While one arrives, it counts as 0 bytes for
this long, and after that as `max_body_bytes`.
"""
WATCH_AFTER_S = 0.02
"""After a request has been handled for this long, its client's connection is watched."""
_NO_ROOM = "too many request bodies in memory"
_TRIM: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc's call that returns freed memory to the system; None elsewhere."""
_LARGE_BYTES = 50_000_000
_TRIM_PAUSE_S = 1.0


class MemoryTrimmer:
    """Counts freed bytes and, when there are many, returns the memory to the system.

    At most once a second, on a thread: a quarter of a gigabyte takes some ten milliseconds.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, size: int) -> None:
        """Count bytes that are about to be freed."""
        self._bytes += size
        if _TRIM and self._bytes >= _LARGE_BYTES and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TRIM_PAUSE_S, self._trim)

    def _trim(self) -> None:
        self._timer, self._bytes = None, 0
        asyncio.get_running_loop().run_in_executor(None, _TRIM, 0)


@dataclass
class Budget:
    """The bytes of all bodies in memory, shared among the addresses that they come from.

    An address may hold at most as many bytes as are still free: half of the limit if it is alone, a
    third if there are two. So a new address always finds room. If an address needs more, its
    largest unfinished body is refused. Large uploads that never end therefore cannot block small
    ones from the same address or proxy.
    """

    limit_bytes: int
    held_bytes: int = 0
    _of_client: Counter[str] = field(default_factory=Counter)
    _unfinished: set[Body] = field(default_factory=set)
    _trimmer: MemoryTrimmer = field(default_factory=MemoryTrimmer)

    def hold(self, body: Body, size: int, *, more: bool, spare_bytes: int = 0) -> None:
        """Count bytes that have arrived, or may.

        Args:
            spare_bytes: what must stay free for others.

        Raises:
            Busy: there is no room for them.
        """
        most = self.limit_bytes - spare_bytes
        while self._of_client[body.client] + size > most - self.held_bytes:
            others = [other for other in self._unfinished if other.client == body.client]
            largest = max(others, key=lambda other: other.size, default=body)
            if largest is body or largest.size <= body.size + size:
                raise Busy(_NO_ROOM, retry_after_s=1)
            largest.refuse()
        body.size += size
        self.held_bytes += size
        self._of_client[body.client] += size
        (self._unfinished.add if more else self._unfinished.discard)(body)

    def release(self, body: Body) -> None:
        """Give back a body's bytes."""
        self._unfinished.discard(body)
        self.held_bytes -= body.size
        self._of_client[body.client] -= body.size
        if not self._of_client[body.client]:
            del self._of_client[body.client]
        self._trimmer.add(body.size)
        body.size = 0


class Body:
    """The body of one request as it arrives, and then whether its client is still there.

    The client is watched from WATCH_AFTER_S on: what is answered by then needs no watching.

    Args:
        budget: what it shares with all others.
        settings: limit its size and the time for it to arrive.
        receive: gives the next part.
        announced: the value of Content-Length.
        client: the address that it comes from.
        whole: whether it is seen only once all of it is there.
    """

    def __init__(
        self,
        budget: Budget,
        settings: Settings,
        receive: Receive,
        announced: bytes,
        client: str,
        *,
        whole: bool = False,
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._loop = task, task.get_loop()
        self._budget = budget
        self._settings = settings
        self._receive = receive
        self._receive_first = self._receive_whole if whole else receive
        # As few digits as any limit has: Python reads no number of thousands.
        self._announced = int(announced.lstrip(b"0")[:20] or 0) if announced.isdigit() else 0
        self.client = client
        self.size = 0
        """Bytes that count in the budget."""
        self._arrived = 0
        self._deadline = self._loop.time() + settings.upload_timeout_s
        self._window_ends = self._loop.time() + WINDOW_S
        self._in_window = 0
        self._timeout: asyncio.Timeout | None = None
        """While a part is awaited."""
        self._refused = False
        self._watching: asyncio.TimerHandle | asyncio.Task[None] | None = None
        """Set once the body is complete."""
        self._abandoned = False

    async def receive(self) -> Message:
        """The next part of the body.

        Raises:
            TooLarge, UploadTimeout: it is over a limit of one body.
            Busy: it does not fit beside the others.
        """
        self._check(self._announced)
        message = await (self._receive() if self._watching else self._receive_in_time())
        size = len(message.get("body", b""))
        self._arrived += size
        self._check(self._arrived)
        more = bool(message.get("more_body"))
        self._budget.hold(self, size, more=more)
        if not self._watching and not more:
            self._watching = self._loop.call_later(WATCH_AFTER_S, self._begin_watching)
        return message

    def hold(self, size: int) -> None:
        """Count bytes that the body became when it was inflated.

        Raises:
            Busy: there is no room for them.
        """
        self._budget.hold(self, size, more=False)

    def refuse(self) -> None:
        """Free the body's room for others. Whoever reads the body gets the error."""
        self._refused = True
        self._budget.release(self)
        if self._timeout and not self._timeout.expired():
            self._timeout.reschedule(self._loop.time())

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

    async def _receive_in_time(self) -> Message:
        if self._refused:
            raise Busy(_NO_ROOM, retry_after_s=1)
        try:
            async with asyncio.timeout_at(min(self._deadline, self._window_ends)) as self._timeout:
                message = await self._receive_first()
        except TimeoutError as error:
            if not self._refused:
                raise UploadTimeout(self._slowness()) from error
        finally:
            self._timeout = None
        if self._refused:
            raise Busy(_NO_ROOM, retry_after_s=1)
        self._in_window += len(message.get("body", b""))
        if self._in_window >= LEAST_BYTES:
            self._in_window, self._window_ends = 0, self._loop.time() + WINDOW_S
        return message

    async def _receive_whole(self) -> Message:
        receiving = asyncio.ensure_future(self._receive())
        try:
            await asyncio.wait([receiving], timeout=MOMENT_S)
            if not receiving.done():
                # Whole messages that never arrive leave half of the budget to bodies that do.
                spare = self._budget.limit_bytes // 2
                self._budget.hold(self, self._settings.max_body_bytes, more=True, spare_bytes=spare)
            return await receiving
        finally:
            receiving.cancel()
            self._budget.release(self)

    def _slowness(self) -> str:
        if self._loop.time() >= self._deadline:
            return f"the body did not arrive within {self._settings.upload_timeout_s:g} s"
        return f"fewer than {LEAST_BYTES:,} bytes of the body arrived within {WINDOW_S:g} s"

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
