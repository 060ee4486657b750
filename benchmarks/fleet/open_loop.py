"""Requests that come by themselves, however long the answers take: Poisson arrivals."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from contextlib import suppress

import numpy as np
import uvloop

from benchmarks.fleet.simulation import Figures

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class OpenLoop:
    """Sends requests to a port, each over a connection that is free, or a new one."""

    def __init__(self, port: int, requests: list[bytes]) -> None:
        self._port = port
        self._requests = requests
        self._free: list[Connection] = []
        self._counted: Counter[int] = Counter()
        self._seconds: list[float] = []

    def run(self, rate: float, seconds: float) -> Figures:
        """Send so many a second; the first tenth of the time is not counted."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run(rate, seconds))
        total = sum(self._counted.values())
        shares = [self._counted[status] / total for status in (429, 504)]
        p50_s, p99_s = np.percentile(self._seconds, (50, 99))
        return Figures(*shares, float(p50_s), float(p99_s))

    async def _run(self, rate: float, seconds: float) -> None:
        gaps = np.random.default_rng(1).exponential(1 / rate, int(rate * seconds))
        began, warm_up_s = time.perf_counter(), seconds / 10
        async with asyncio.timeout(3 * seconds + 30), asyncio.TaskGroup() as group:
            for turn, due in enumerate(np.cumsum(gaps).tolist()):
                await asyncio.sleep(began + due - time.perf_counter())
                group.create_task(self._ask(turn, counted=due >= warm_up_s))
        for _, writer in self._free:
            writer.close()

    async def _ask(self, turn: int, *, counted: bool) -> None:
        began = time.perf_counter()
        reader, writer = self._free.pop() if self._free else await self._connect()
        writer.write(self._requests[turn % len(self._requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        assert length
        await reader.readexactly(int(length[1]))
        if b"connection: close" in head.lower():
            writer.close()
        else:
            self._free.append((reader, writer))
        if counted:
            status = int(head.split(maxsplit=2)[1])
            self._counted[status] += 1
            if status == 200:
                self._seconds.append(time.perf_counter() - began)

    async def _connect(self) -> Connection:
        while True:
            with suppress(ConnectionRefusedError):
                return await asyncio.open_connection("127.0.0.1", self._port)
            await asyncio.sleep(0.05)
