"""What each caller may take of this process: bytes, rows of networks and milliseconds.

`Admission` counts for all callers. A `Claim` is what one connection, request or gRPC call has
taken. Rows are charged when they are admitted. At its end it gives bytes and rows back, and its
caller is charged for the other milliseconds.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

from service.errors import Busy, Problem, RateLimited, TooLate, Unavailable

if TYPE_CHECKING:  # processes that decode do not import pydantic
    from model.outputs import Graph

NO_ROOM = "too many bytes of requests and answers in memory"
TURN_ROWS = 16
"""A large request computes rows of this price at a time, then others have their turn."""
ROW_S = 0.0027
"""Seconds of a core that count as one row: those of the most expensive network's row."""
SHORT_ANSWER_BYTES = 1_000
MAX_CALLERS = 10_000
"""This many callers are charged. Beyond them, the one that was silent longest starts anew."""
MAX_RETRY_S = 30.0
_UNKNOWN_S = 1.0
"""`Retry-After` before any rate is measured."""
_JITTER = 1.5
"""`Retry-After` is multiplied by at most this factor, so that clients do not return at once."""
_MEMORY = 0.98
"""The weight of earlier results in the measured rate, at each new result."""
_TRIM: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc's call that returns freed memory to the system; None elsewhere."""
_TRIM_BYTES = 50_000_000
_TRIM_PAUSE_S = 1.0


def row_prices(core_s: Mapping[tuple[str, Graph], float]) -> dict[tuple[str, Graph], int]:
    """The price in rows of one row of each graph of each network.

    A row that takes `ROW_S` costs 1, and one that takes twice as long costs 2. Where the quickest
    encoder takes longer than `ROW_S`, its row costs 1.

    Args:
        core_s: seconds of a core that a row takes, by the network's name and the graph.
    """
    quickest = min((s for (_, graph), s in core_s.items() if graph == "encode"), default=0.0)
    unit_s = max(ROW_S, quickest)
    return {key: max(1, int(seconds / unit_s)) for key, seconds in core_s.items()}


class Admission:
    """Counts what each caller takes, and refuses what is too much. For one event loop alone.

    *Bytes*: of connections, bodies and what they expand to, gRPC calls, and answers until their
    clients have taken them. An address may add bytes while it holds less than is still free. So one
    address alone may hold half of the limit; each of two, a third. If an address needs more, a
    larger unfinished body is refused: one of an address that holds more, or else of its own.

    *Rows*: of requests that wait or are computed. A request that could not be answered before its
    deadline is refused at once.

    *Milliseconds*: each caller has a bucket of rows, which fills with time. A caller that has a row
    may spend more than it has, and then waits until the debt is paid. Work other than rows, such as
    drawing, is measured and charged when it is done.

    Args:
        limit_bytes: of all addresses together.
        limit_rows: of all requests together; one that costs more waits for an empty queue.
        rows_per_s: how fast a caller's bucket fills; 0 for no limit.
        burst_rows: what a bucket holds.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        limit_bytes: int,
        limit_rows: int,
        *,
        rows_per_s: float = 0.0,
        burst_rows: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit_bytes, self.limit_rows = limit_bytes, limit_rows
        self.held_bytes = self.waiting_rows = 0
        self._rows_per_s, self._burst_rows, self._clock = rows_per_s, burst_rows, clock
        self._bytes_of = Counter[str]()
        self._rows_of = Counter[Hashable]()
        self._full_at: dict[Hashable, float] = {}
        """When a caller's bucket is full again; the caller that spent last is at the end."""
        self._unfinished: set[Claim] = set()
        self._computed_rows = self._computed_s = 0.0
        self._freed_bytes = 0
        self._trim_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"Admission({self.held_bytes} bytes, {self.waiting_rows} of {self.limit_rows} rows)"

    def claim(self, address: str, size: int = 0) -> Claim:
        """A new claim of an address, which holds so many bytes without being asked."""
        claim = Claim(self, address)
        self.count_bytes(claim, size)
        return claim

    @property
    def rate(self) -> float:
        """The rows a second while any were computed; zero before anything is measured."""
        return self._computed_rows / self._computed_s if self._computed_s else 0.0

    def hold(self, claim: Claim, size: int, spare_bytes: int, refusal: type[Problem]) -> None:
        """Count a claim's further bytes; see `Claim.hold`."""
        most = self.limit_bytes - spare_bytes
        while self._bytes_of[claim.address] + size > most - self.held_bytes:
            if (other := self._find_larger(claim, size)) is None:
                raise refusal(NO_ROOM, retry_after_s=1)
            other.refuse()
        self.count_bytes(claim, size)
        (self._unfinished.add if claim.unfinished else self._unfinished.discard)(claim)

    def _find_larger(self, claim: Claim, size: int) -> Claim | None:
        """The unfinished body that gives way to further bytes of a claim, if any does."""
        held, larger = self._bytes_of[claim.address] + size, list[Claim]()
        for other in self._unfinished:
            own = other.address == claim.address
            if other.size > claim.size + size if own else self._bytes_of[other.address] > held:
                larger.append(other)
        return max(larger, key=lambda one: (self._bytes_of[one.address], one.size), default=None)

    def count_bytes(self, claim: Claim, size: int) -> None:
        """Count further bytes of a claim, or fewer."""
        claim.size += size
        self.held_bytes += size
        self._bytes_of[claim.address] += size
        if not self._bytes_of[claim.address]:
            del self._bytes_of[claim.address]

    def free_bytes(self, claim: Claim, size: int) -> None:
        """Count bytes that are about to be freed. Many are returned to the system, on a thread.

        That takes some ten milliseconds for a quarter of a gigabyte.
        """
        self.count_bytes(claim, -size)
        self._unfinished.discard(claim)
        self._freed_bytes += size
        if _TRIM and self._freed_bytes >= _TRIM_BYTES and self._trim_timer is None:
            loop = asyncio.get_running_loop()
            self._trim_timer = loop.call_later(_TRIM_PAUSE_S, self._trim)

    def _trim(self) -> None:
        self._trim_timer, self._freed_bytes = None, 0
        asyncio.get_running_loop().run_in_executor(None, _TRIM, 0)

    def check_rows(self, claim: Claim, rows: int) -> None:
        """Refuse rows beyond the limit, or those whose turn would come after the deadline.

        Raises:
            Busy, TooLate: see `Claim.admit`.
        """
        left_s = claim.deadline - self._clock()
        if left_s <= 0:
            raise TooLate("the deadline had passed before the request was admitted")
        wait_s = self._rows_before(claim.caller, rows) / self.rate if self.rate else 0.0
        if wait_s >= left_s or self.waiting_rows + rows > self.limit_rows:
            wait_s = min(wait_s or _UNKNOWN_S, MAX_RETRY_S / _JITTER)
            wait_s *= random.uniform(1, _JITTER)  # noqa: S311
            text = f"the queue is full; try again in {math.ceil(wait_s)} s"
            raise Busy(text, retry_after_s=wait_s)

    def _rows_before(self, caller: Hashable, rows: int) -> int:
        """The rows that are computed before the last of these, as callers take turns."""
        most = math.ceil(rows / TURN_ROWS) * TURN_ROWS
        return sum(
            waiting if other == caller else min(waiting, most)
            for other, waiting in self._rows_of.items()
        )

    def count_rows(self, claim: Claim, rows: int) -> None:
        """Count further waiting rows of a claim, or fewer."""
        claim.rows += rows
        self.waiting_rows += rows
        self._rows_of[claim.caller] += rows
        if not self._rows_of[claim.caller]:
            del self._rows_of[claim.caller]

    def record_rate(self, rows: int, seconds: float) -> None:
        """Measure how fast rows are computed."""
        self._computed_rows = _MEMORY * self._computed_rows + rows
        self._computed_s = _MEMORY * self._computed_s + seconds

    def spend(self, caller: Hashable, rows: int, *, paid: int = 0) -> None:
        """Take rows from a caller's bucket, at least one.

        Args:
            caller: whose.
            rows: what the request costs in all.
            paid: rows that this request has already taken.

        Raises:
            RateLimited: the caller has less than one row, `paid` included.
        """
        if not self._rows_per_s:
            return
        now = self._clock()
        debt_s = max(0.0, self._full_at.get(caller, now) - now)
        left = self._burst_rows - debt_s * self._rows_per_s + paid
        if left < 1:
            wait_s = (1 - left) / self._rows_per_s
            text = f"more than {self._rows_per_s:g} rows a second; try again in {wait_s:.3g} s"
            raise RateLimited(text, retry_after_s=wait_s)
        self.owe(caller, max(rows, 1) - paid)

    def owe(self, caller: Hashable, rows: int) -> None:
        """Take rows for what is computed already, whether the caller has them or not."""
        if not self._rows_per_s:
            return
        now = self._clock()
        full_at = max(self._full_at.pop(caller, now), now)
        self._full_at[caller] = full_at + rows / self._rows_per_s
        if len(self._full_at) > MAX_CALLERS:
            del self._full_at[next(iter(self._full_at))]


class Claim:
    """What one connection, request or gRPC call has taken.

    As a context manager, it is the claim of the current task and of those that it starts, and gives
    everything back at the end.

    Args:
        admission: counts it.
        address: of the client, by which bytes are counted.
    """

    deadline = math.inf
    """When the client stops waiting, in monotonic seconds."""
    rows = 0
    """Rows that were admitted and are not computed yet."""
    image_price = 1
    """The price of one of its images: how many times as many pixels as the network's it has."""
    cpu_s = 0.0
    """Seconds of other work than rows."""
    size = 0
    """Bytes that it holds."""
    unfinished = refused = False
    """Whether more of its body is to arrive, and whether it was refused in favour of others."""
    waiting: asyncio.Timeout | None = None
    """Set while a part of its body is awaited; a refusal ends that."""
    pays = False
    """Whether its caller pays, where the settings limit rows."""

    def __init__(self, admission: Admission, address: str) -> None:
        self._admission, self.address = admission, address
        self.caller: Hashable = address
        """The key or the address that rows and milliseconds are counted by."""
        self.seconds: dict[str, float] = defaultdict(float)
        """How long each stage of it took."""
        self._reserved = 0

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(self, *_error: object) -> None:
        _current.reset(self._token)
        self.release()

    def hold(self, size: int, *, spare_bytes: int = 0, refusal: type[Problem] = Busy) -> None:
        """Count further bytes.

        Args:
            size: that have arrived, or may.
            spare_bytes: what must stay free for others.
            refusal: the problem where there is no room.

        Raises:
            Problem: the refusal.
        """
        self._admission.hold(self, size, spare_bytes, refusal)

    def resize(self, size: int) -> None:
        """Hold so many bytes, more or fewer than before.

        Raises:
            Busy: there is no room for more.
        """
        if size > self.size:
            self.hold(size - self.size)
        elif size < self.size:
            self._admission.free_bytes(self, self.size - size)

    def reserve_answer(self, size: int) -> None:
        """Count an answer of this size before it is computed.

        Raises:
            Unavailable: there is no room for it.
        """
        self.hold(size, refusal=Unavailable)
        self._reserved += size

    def begin_answer(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Count an answer that begins. Errors and other short ones, as of probes, need no room.

        No more rows are computed for the request.

        Raises:
            Unavailable: there is no room for it.
        """
        self.release_rows()
        length = int(headers.get(b"content-length", b"0"))
        if status < HTTPStatus.BAD_REQUEST and length > SHORT_ANSWER_BYTES:
            self.reserve_answer(max(0, length - self._reserved))

    def refuse(self) -> None:
        """Free its bytes for others."""
        self.release_bytes()
        self.refused = True
        if self.waiting and not self.waiting.expired():
            self.waiting.reschedule(asyncio.get_running_loop().time())

    def charge(self, rows: int = 1, *, paid: int = 0) -> None:
        """Charge the caller for rows, if it pays: see `Admission.spend`.

        Raises:
            RateLimited: the caller has asked for too many.
        """
        if self.pays:
            self._admission.spend(self.caller, rows, paid=paid)

    def admit(self, cost: int, *, files: int = 0) -> None:
        """Count rows as waiting until they are computed or released, and charge for them.

        A request that costs more than the limit has the queue for itself.

        Args:
            cost: of all rows of the request.
            files: that are decoded: the caller is charged for at least one row for each.

        Raises:
            TooLate: the deadline has passed.
            Busy: the rows do not fit, or would wait past the deadline.
            RateLimited: the caller has asked for too many.
        """
        rows = min(cost, self._admission.limit_rows)
        self._admission.check_rows(self, rows)
        self._admission.count_rows(self, rows)
        self.charge(max(rows, files), paid=1)

    def record_computed(self, cost: int, seconds: float) -> None:
        """Count rows as computed.

        Args:
            cost: of the rows.
            seconds: that computing took, without those of waiting.
        """
        self._admission.record_rate(cost, seconds)
        self._admission.count_rows(self, -min(cost, self.rows))

    def release_rows(self) -> None:
        """Give back the admitted rows that were not computed."""
        self._admission.count_rows(self, -self.rows)

    def release_bytes(self) -> None:
        """Give the bytes back."""
        self.unfinished = False
        self._admission.free_bytes(self, self.size)

    def release(self) -> None:
        """Give everything back, and charge for what else was computed."""
        self.release_rows()
        self.release_bytes()
        if owed := int(self.cpu_s / ROW_S) * self.pays:
            self._admission.owe(self.caller, owed)


_current: ContextVar[Claim | None] = ContextVar("claim", default=None)


def current_caller() -> Hashable:
    """Whom the current task works for: the key or the address of the request."""
    claim = _current.get()
    return claim.caller if claim else None


def record_stage(stage: str, seconds: float) -> None:
    """Add to a stage of the request that this task works for, if any."""
    if claim := _current.get():
        claim.seconds[stage] += seconds


def add_cpu_time(seconds: float) -> None:
    """Charge the request that this task works for, if any."""
    if claim := _current.get():
        claim.cpu_s += seconds
