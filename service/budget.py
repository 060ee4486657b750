"""One budget counts every byte that clients make this process hold, until it is given back.

It counts connections with their headers, request bodies and what they expand to, gRPC calls, and
answers until their clients have taken them.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from service.errors import Busy, Problem, Unavailable

NO_ROOM = "too many bytes of requests and answers in memory"
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
    third if there are two. So a new address always finds room. If an address needs more, its
    largest unfinished body is refused. Large uploads that never end therefore cannot block small
    ones from the same address or proxy.
    """

    limit_bytes: int
    held_bytes: int = 0
    _of_client: Counter[str] = field(default_factory=Counter)
    _unfinished: set[Share] = field(default_factory=set)
    _trimmer: MemoryTrimmer = field(default_factory=MemoryTrimmer)

    def share(self, client: str) -> Share:
        """A new share of an address. It holds nothing yet."""
        return Share(self, client)

    def hold(self, share: Share, size: int, spare_bytes: int, refusal: type[Problem]) -> None:
        """Count a share's further bytes; see `Share.hold`."""
        most = self.limit_bytes - spare_bytes
        while self._of_client[share.client] + size > most - self.held_bytes:
            others = [other for other in self._unfinished if other.client == share.client]
            largest = max(others, key=lambda other: other.size, default=share)
            if largest is share or largest.size <= share.size + size:
                raise refusal(NO_ROOM, retry_after_s=1)
            largest.refuse()
        share.size += size
        self.held_bytes += size
        self._of_client[share.client] += size
        (self._unfinished.add if share.unfinished else self._unfinished.discard)(share)

    def release(self, share: Share) -> None:
        """Give back all bytes of a share."""
        self._unfinished.discard(share)
        self.held_bytes -= share.size
        self._of_client[share.client] -= share.size
        if not self._of_client[share.client]:
            del self._of_client[share.client]
        self._trimmer.add(share.size)
        share.size = 0


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
        """Count an answer that begins. Errors are short, and need no room.

        Raises:
            Unavailable: there is no room for it.
        """
        if status < HTTPStatus.BAD_REQUEST:
            length = int(headers.get(b"content-length", b"0"))
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
        self._budget.release(self)
