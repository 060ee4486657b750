"""What each caller may take of this process: bytes, rows of networks and milliseconds.

A *row* is one image, pose or trace that a graph computes. Its *price* says how slow the graph is,
and the *cost* of rows is their number times their price. A *caller* is an API key or, if none are
set, an address.

A `Claim` is what one connection, request or gRPC call has taken; `Admission` has the sums of all.
Rows are charged when they are admitted. At the end of a claim its bytes are given back, and its
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
TURN_COST = 16
"""A large request computes rows of this cost at a time, then others have their turn."""
ROW_S = 0.0027
"""Seconds of a core that cost 1: those of a row of the slowest encoder that ships."""
SHORT_ANSWER_BYTES = 1_000
MAX_CALLERS = 10_000
"""This many callers are charged. Beyond them, the one that was silent longest starts anew."""
MAX_RETRY_S = 30.0
_UNKNOWN_S = 1.0
"""`Retry-After` before any rate is measured."""
_JITTER = 1.5
"""`Retry-After` is multiplied by at most this factor, so that clients do not return at once."""
_DECAY = 0.98
"""The weight of earlier results in the measured rate, at each new result."""
_TRIM: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc's call that returns freed memory to the system; None elsewhere."""
_TRIM_BYTES = 50_000_000
_TRIM_PAUSE_S = 1.0


def row_prices(core_s: Mapping[tuple[str, Graph], float]) -> dict[tuple[str, Graph], int]:
    """The price of a row of each graph of each network.

    It is 1 if a row takes `ROW_S`, and 2 if it takes twice as long. Where the quickest encoder
    takes longer than `ROW_S`, its price is 1.

    Args:
        core_s: seconds of a core that a row takes, by the network's name and the graph.
    """
    quickest = min((s for (_, graph), s in core_s.items() if graph == "encode"), default=0.0)
    unit_s = max(ROW_S, quickest)
    return {key: max(1, int(seconds / unit_s)) for key, seconds in core_s.items()}


class Admission:
    """What all claims have taken together, and what they may take. For one event loop alone.

    *Bytes*: of connections, bodies and what they expand to, gRPC calls, and answers until their
    clients have taken them. An address may add bytes while it holds less than is still free. So one
    address alone may hold half of the limit; each of two, a third. If an address needs more, a
    larger unfinished body is refused: one of an address that holds more, or else of its own.

    *Cost*: of rows that wait or are computed. A request that could not be answered before its
    deadline is refused at once.

    *Milliseconds*: each caller has a bucket of cost, which fills with time. A caller that has a
    cost of 1 left may spend more than it has, and then waits until the debt is paid. Work other
    than rows, such as drawing, is measured and charged when it is done.

    Args:
        limit_bytes: of all addresses together.
        limit_cost: of all requests together; one that costs more needs an empty queue.
        cost_per_s: how fast a caller's bucket fills; 0 for no limit.
        burst_cost: what a bucket holds.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        limit_bytes: int,
        limit_cost: int,
        *,
        cost_per_s: float = 0.0,
        burst_cost: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit_bytes, self.limit_cost = limit_bytes, limit_cost
        self.cost_per_s, self.burst_cost, self.clock = cost_per_s, burst_cost, clock
        self.held_bytes = self.waiting_cost = 0
        self.bytes_of = Counter[str]()
        """What each address holds."""
        self.unfinished: set[Claim] = set()
        """Those that hold a part of a body, whose rest is to arrive."""
        self.cost_of = Counter[Hashable]()
        """What waits for each caller."""
        self.full_at: dict[Hashable, float] = {}
        """When a caller's bucket is full again; the caller that spent last is at the end."""
        self._computed_cost = self._computed_s = 0.0
        self._freed_bytes = 0
        self._trim_timer: asyncio.TimerHandle | None = None

    def claim(self, address: str, size: int = 0) -> Claim:
        """A new claim of an address, which holds so many bytes without being asked."""
        claim = Claim(self, address)
        claim.count_bytes(size)
        return claim

    @property
    def rate(self) -> float:
        """The cost a second while rows were computed; zero before anything is measured."""
        return self._computed_cost / self._computed_s if self._computed_s else 0.0

    def record_rate(self, cost: int, seconds: float) -> None:
        """Measure how fast rows are computed."""
        self._computed_cost = _DECAY * self._computed_cost + cost
        self._computed_s = _DECAY * self._computed_s + seconds

    def trim(self, size: int) -> None:
        """Record bytes that are about to be freed. Many are returned to the system, on a thread.

        That takes some ten milliseconds for a quarter of a gigabyte.
        """
        self._freed_bytes += size
        if _TRIM and self._freed_bytes >= _TRIM_BYTES and self._trim_timer is None:
            loop = asyncio.get_running_loop()
            self._trim_timer = loop.call_later(_TRIM_PAUSE_S, self._trim)

    def _trim(self) -> None:
        self._trim_timer, self._freed_bytes = None, 0
        asyncio.get_running_loop().run_in_executor(None, _TRIM, 0)


class Claim:
    """What one connection, request or gRPC call has taken.

    As a context manager, it is the claim of the current task and of those that it starts, and is
    released at the end.

    Args:
        admission: counts it.
        address: by which bytes are counted: of a connection, where it comes from; of a request, the
            client's, as a trusted proxy forwards it.
    """

    size = 0
    """Bytes that it holds."""
    refused = False
    """Whether its body was refused in favour of others."""
    waiting: asyncio.Timeout | None = None
    """Set while a part of its body is awaited; a refusal ends that."""
    deadline = math.inf
    """When the client stops waiting, in monotonic seconds."""
    waiting_cost = 0
    """The cost of rows that were admitted and are not computed yet."""
    relative_size = 1
    """The pixels of its images, as a multiple of the network's: a factor of each row's price."""
    cpu_s = 0.0
    """Seconds of other work than rows."""

    def __init__(self, admission: Admission, address: str) -> None:
        self._admission, self.address = admission, address
        self.caller: Hashable = address
        """Whose cost this is; the router sets the API key."""
        self.seconds: dict[str, float] = defaultdict(float)
        """How long each stage of it took."""
        self._reserved_bytes = 0
        self._pays = False

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def hold(
        self,
        size: int,
        *,
        unfinished: bool = False,
        spare_bytes: int = 0,
        refusal: type[Problem] = Busy,
    ) -> None:
        """Count further bytes, while the address holds less than is free: see `Admission`.

        Args:
            size: that have arrived, or may.
            unfinished: whether they are a part of a body, which may be refused for others later.
            spare_bytes: what must stay free for others.
            refusal: the problem where there is no room.

        Raises:
            Problem: the refusal.
        """
        admission = self._admission
        most = admission.limit_bytes - spare_bytes
        while admission.bytes_of[self.address] + size > most - admission.held_bytes:
            if (other := self._find_larger(size)) is None:
                raise refusal(NO_ROOM, retry_after_s=1)
            other.refuse()
        self.count_bytes(size)
        (admission.unfinished.add if unfinished else admission.unfinished.discard)(self)

    def _find_larger(self, size: int) -> Claim | None:
        """The unfinished body that gives way to further bytes of this claim, if any does."""
        bytes_of = self._admission.bytes_of
        held, larger = bytes_of[self.address] + size, list[Claim]()
        for other in self._admission.unfinished:
            own = other.address == self.address
            if other.size > self.size + size if own else bytes_of[other.address] > held:
                larger.append(other)
        return max(larger, key=lambda one: (bytes_of[one.address], one.size), default=None)

    def refuse(self) -> None:
        """Free its bytes for others. Waiting for more of its body ends."""
        self.release_bytes()
        self.refused = True
        if self.waiting and not self.waiting.expired():
            self.waiting.reschedule(asyncio.get_running_loop().time())

    def charge(self, cost: int = 1, *, paid: int = 0) -> None:
        """Take a cost from the caller's bucket, at least 1. From now on, it pays for other work.

        Args:
            cost: of the request in all.
            paid: what this request has already taken.

        Raises:
            RateLimited: the caller has less than 1, `paid` included.
        """
        self._pays = True
        per_s = self._admission.cost_per_s
        if not per_s:
            return
        now = self._admission.clock()
        debt_s = max(0.0, self._admission.full_at.get(self.caller, now) - now)
        left = self._admission.burst_cost - debt_s * per_s + paid
        if left < 1:
            wait_s = (1 - left) / per_s
            text = f"more than {per_s:g} rows a second; try again in {wait_s:.3g} s"
            raise RateLimited(text, retry_after_s=wait_s)
        self._owe(max(cost, 1) - paid)

    def _owe(self, cost: int) -> None:
        """Take a cost from the caller's bucket, whether there is so much or not."""
        full_at, per_s = self._admission.full_at, self._admission.cost_per_s
        if per_s:
            now = self._admission.clock()
            full_at[self.caller] = max(full_at.pop(self.caller, now), now) + cost / per_s
            if len(full_at) > MAX_CALLERS:
                del full_at[next(iter(full_at))]

    def admit(self, cost: int, *, files: int = 0) -> None:
        """Count a cost as waiting until it is computed or released, and charge for it.

        A request that costs more than the limit has the queue for itself.

        Args:
            cost: of all rows of the request.
            files: that are decoded: the caller is charged at least 1 for each.

        Raises:
            TooLate: the deadline has passed.
            Busy: the rows do not fit, or would wait past the deadline.
            RateLimited: the caller has asked for too many.
        """
        admission = self._admission
        cost = min(cost, admission.limit_cost)
        left_s = self.deadline - admission.clock()
        if left_s <= 0:
            raise TooLate("the deadline had passed before the request was admitted")
        wait_s = self._cost_before(cost) / admission.rate if admission.rate else 0.0
        if wait_s >= left_s or admission.waiting_cost + cost > admission.limit_cost:
            wait_s = min(wait_s or _UNKNOWN_S, MAX_RETRY_S / _JITTER)
            wait_s *= random.uniform(1, _JITTER)  # noqa: S311
            text = f"the queue is full; try again in {math.ceil(wait_s)} s"
            raise Busy(text, retry_after_s=wait_s)
        self._count_cost(cost)
        self.charge(max(cost, files), paid=1)  # which `Route.handle` took

    def _cost_before(self, cost: int) -> int:
        """What is computed before the last of these rows, as callers take turns."""
        most = math.ceil(cost / TURN_COST) * TURN_COST
        return sum(
            waiting if other == self.caller else min(waiting, most)
            for other, waiting in self._admission.cost_of.items()
        )

    def record_computed(self, cost: int, seconds: float) -> None:
        """Count rows as computed.

        Args:
            cost: of the rows.
            seconds: that computing took, without those of waiting.
        """
        self._admission.record_rate(cost, seconds)
        self._count_cost(-min(cost, self.waiting_cost))

    def release_rows(self) -> None:
        """Give back the admitted rows that were not computed: no more are."""
        self._count_cost(-self.waiting_cost)

    def reserve_answer(self, size: int) -> None:
        """Count an answer of this size before it is computed.

        Raises:
            Unavailable: there is no room for it.
        """
        self.hold(size, refusal=Unavailable)
        self._reserved_bytes += size

    def begin_answer(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Count an answer that begins. Errors and other short ones, as of probes, need no room.

        Raises:
            Unavailable: there is no room for it.
        """
        length = int(headers.get(b"content-length", b"0"))
        if status < HTTPStatus.BAD_REQUEST and length > SHORT_ANSWER_BYTES:
            self.reserve_answer(max(0, length - self._reserved_bytes))

    def __exit__(self, *_error: object) -> None:
        _current.reset(self._token)
        self.release()

    def release(self) -> None:
        """Give the bytes back, and charge for what else was computed."""
        self.release_bytes()
        if self._pays and (owed := int(self.cpu_s / ROW_S)):
            self._owe(owed)

    def release_bytes(self) -> None:
        """Give the bytes back."""
        self._admission.unfinished.discard(self)
        self.resize(0)

    def resize(self, size: int) -> None:
        """Hold so many bytes, more or fewer than before.

        Raises:
            Busy: there is no room for more.
        """
        if size > self.size:
            self.hold(size - self.size)
        elif size < self.size:
            self._admission.trim(self.size - size)
            self.count_bytes(size - self.size)

    def count_bytes(self, size: int) -> None:
        """Count further bytes, or fewer, without asking."""
        self.size += size
        admission = self._admission
        admission.held_bytes += size
        admission.bytes_of[self.address] += size
        if not admission.bytes_of[self.address]:
            del admission.bytes_of[self.address]

    def _count_cost(self, cost: int) -> None:
        """Count further waiting cost, or less."""
        self.waiting_cost += cost
        admission = self._admission
        admission.waiting_cost += cost
        admission.cost_of[self.caller] += cost
        if not admission.cost_of[self.caller]:
            del admission.cost_of[self.caller]


_current: ContextVar[Claim | None] = ContextVar("claim", default=None)


def current_caller() -> Hashable:
    """Whom the current task works for."""
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
