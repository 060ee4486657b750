"""What a client may take: the bytes that it makes this process hold, and rows a second.

The budget of bytes counts connections with their headers, request bodies and what they expand to,
gRPC calls, and answers until their clients have taken them.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from service.errors import Busy, Problem, RateLimited, Unavailable

NO_ROOM = "too many bytes of requests and answers in memory"
SHORT_ANSWER_BYTES = 1_000
MAX_CALLERS = 10_000
"""This many clients are remembered. Beyond them, the one that was silent longest starts anew."""
_TRIM: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""glibc's call that returns freed memory to the system; None elsewhere."""
_TRIM_BYTES = 50_000_000
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
        if _TRIM and self._bytes >= _TRIM_BYTES and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TRIM_PAUSE_S, self._trim)

    def _trim(self) -> None:
        self._timer, self._bytes = None, 0
        asyncio.get_running_loop().run_in_executor(None, _TRIM, 0)


@dataclass
class Budget:
    """The bytes of all clients, shared among their addresses.

    An address may hold at most as many bytes as are still free: half of the limit if it is alone, a
    third if there are two. If an address needs more, an unfinished body is refused: the largest one
    of the address that holds most. Large uploads that never end therefore block nobody.
    """

    limit_bytes: int
    held_bytes: int = 0
    _of_client: Counter[str] = field(default_factory=Counter)
    _unfinished: set[Share] = field(default_factory=set)
    _trimmer: MemoryTrimmer = field(default_factory=MemoryTrimmer)

    def share(self, client: str, size: int = 0) -> Share:
        """A new share of an address, which holds so many bytes without being asked."""
        share = Share(self, client)
        self._count(share, size)
        return share

    def hold(self, share: Share, size: int, spare_bytes: int, refusal: type[Problem]) -> None:
        """Count a share's further bytes; see `Share.hold`."""
        most = self.limit_bytes - spare_bytes
        while self._of_client[share.client] + size > most - self.held_bytes:
            if (other := self._find_larger(share, size)) is None:
                raise refusal(NO_ROOM, retry_after_s=1)
            other.refuse()
        self._count(share, size)
        (self._unfinished.add if share.unfinished else self._unfinished.discard)(share)

    def _find_larger(self, share: Share, size: int) -> Share | None:
        """The unfinished body that gives way to further bytes of a share, if any does.

        It is the largest one of the same address, or of the one that holds most, if that is more.
        """
        held = self._of_client[share.client] + size
        clients = {other.client for other in self._unfinished} | {share.client}
        most = max(clients, key=lambda client: self._of_client[client])
        if self._of_client[most] <= held:
            most = share.client
        others = [other for other in self._unfinished if other.client == most]
        largest = max(others, key=lambda other: other.size, default=share)
        is_larger = largest is not share and largest.size > share.size + size
        return largest if is_larger or (most != share.client and largest is not share) else None

    def release(self, share: Share, size: int) -> None:
        """Give back so many bytes of a share."""
        self._trimmer.add(size)
        self._count(share, -size)
        self._unfinished.discard(share)

    def _count(self, share: Share, size: int) -> None:
        share.size += size
        self.held_bytes += size
        self._of_client[share.client] += size
        if not self._of_client[share.client]:
            del self._of_client[share.client]


class Share:
    """The bytes that one connection, request or call holds.

    Args:
        budget: that counts them.
        client: the address that they come from or go to.
    """

    def __init__(self, budget: Budget, client: str) -> None:
        self._budget, self.client = budget, client
        self.size = self._reserved = 0
        self.unfinished = self.refused = False
        """Whether more of its body is to arrive, and whether it was refused in favour of others."""
        self.waiting: asyncio.Timeout | None = None
        """Set while a part of its body is awaited; a refusal ends that."""

    def hold(self, size: int, *, spare_bytes: int = 0, refusal: type[Problem] = Busy) -> None:
        """Count further bytes.

        Args:
            size: that have arrived, or may.
            spare_bytes: what must stay free for others.
            refusal: the problem where there is no room.

        Raises:
            Problem: the refusal.
        """
        self._budget.hold(self, size, spare_bytes, refusal)

    def hold_answer(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Count an answer that begins. Errors and other short ones, as of probes, need no room.

        Raises:
            Unavailable: there is no room for it.
        """
        length = int(headers.get(b"content-length", b"0"))
        if status < HTTPStatus.BAD_REQUEST and length > SHORT_ANSWER_BYTES:
            self.reserve_answer(max(0, length - self._reserved))

    def reserve_answer(self, size: int) -> None:
        """Count an answer of this size before it is computed.

        Raises:
            Unavailable: there is no room for it.
        """
        self.hold(size, refusal=Unavailable)
        self._reserved += size

    def refuse(self) -> None:
        """Free its room for others."""
        self.release()
        self.refused = True
        if self.waiting and not self.waiting.expired():
            self.waiting.reschedule(asyncio.get_running_loop().time())

    def release(self) -> None:
        """Give its bytes back."""
        self.unfinished = False
        self._budget.release(self, self.size)

    def resize(self, size: int) -> None:
        """Hold so many bytes, more or fewer than before.

        Raises:
            Busy: there is no room for more.
        """
        if size > self.size:
            self.hold(size - self.size)
        elif size < self.size:
            self._budget.release(self, self.size - size)


class RateLimit:
    """A token bucket of rows for each client. A request costs at least one row.

    A caller that has a token may spend more than it has: a request may cost more than the bucket
    holds. It waits until the debt is paid. For one event loop alone.

    Args:
        rows_per_s: how fast a bucket fills.
        burst_rows: what it holds.
        clock: monotonic seconds.
    """

    def __init__(
        self, rows_per_s: float, burst_rows: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rows_per_s, self._burst_rows, self._clock = rows_per_s, burst_rows, clock
        self._full_at: dict[Hashable, float] = {}
        """When a caller's bucket is full again; the caller that spent last is at the end."""

    def __repr__(self) -> str:
        return f"RateLimit({self._rows_per_s:g} rows/s of {len(self._full_at)} callers)"

    def spend(self, caller: Hashable, rows: int, *, paid: int = 0) -> None:
        """Take tokens.

        Args:
            caller: whose.
            rows: what the request costs in all.
            paid: tokens that this request has already taken.

        Raises:
            RateLimited: the caller has less than one token, `paid` included.
        """
        now = self._clock()
        full_at = max(self._full_at.get(caller, now), now)
        tokens = self._burst_rows - (full_at - now) * self._rows_per_s + paid
        if tokens < 1:
            wait_s = (1 - tokens) / self._rows_per_s
            text = f"more than {self._rows_per_s:g} rows a second; try again in {wait_s:.3g} s"
            raise RateLimited(text, retry_after_s=wait_s)
        self.owe(caller, max(rows, 1) - paid)

    def owe(self, caller: Hashable, rows: int) -> None:
        """Take tokens for what is computed already, whether the caller has them or not."""
        now = self._clock()
        full_at = max(self._full_at.pop(caller, now), now)
        self._full_at[caller] = full_at + rows / self._rows_per_s
        if len(self._full_at) > MAX_CALLERS:
            del self._full_at[next(iter(self._full_at))]
