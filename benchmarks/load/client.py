"""The load generator, in a process of its own: a `Load` as JSON on stdin, an `Outcome` on stdout.

Every connection sends its next request when the last was answered, and every answer's label is
checked. Written close to the sockets, because on a small machine a client's cost is taken from the
server that it measures.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import re
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import cast

import httptools
import uvloop

RECONNECT_S = 0.05
DRAIN_S = 10.0
"""Longest wait for requests in flight at the end of a measurement."""


@dataclass(frozen=True)
class Load:
    """What to send, and how much of it."""

    port: int
    requests: list[str]
    """Whole HTTP requests, base64; each connection goes through them in turn."""
    labels: list[int]
    """What their answers must say."""
    pattern: str
    """Finds the label in an answer's body."""
    connections: int
    warm_up_s: float
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What came of it. Times are those of answers with status 200 within the measured window."""

    rate: float
    """Answers with status 200 a second."""
    p50_ms: float
    p99_ms: float
    max_ms: float
    statuses: dict[str, int]
    """All answers, those before and after the window included."""
    wrong: int
    """Answers with status 200 and another label."""
    failures: int
    """Connections that were refused or broke."""
    client_cpu: float
    """Cores that this process took."""


@dataclass
class Tally:
    """What the connections have seen so far."""

    latencies: list[float] = field(default_factory=list)
    """Seconds; emptied when the window opens."""
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: int = 0
    failures: int = 0


class Connection(asyncio.Protocol):
    """One client: keeps its connection, sends one request at a time, honours `Retry-After`."""

    def __init__(self, generator: Generator, turn: int) -> None:
        self._generator = generator
        self._turn = turn
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._sent = 0.0
        """When, or 0 if no request is under way."""
        self._body = b""
        self._retry_after_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def _send(self) -> None:
        if self._transport is None:
            return
        if self._generator.stopping:
            self._transport.close()
            return
        self._turn = (self._turn + 1) % len(self._generator.requests)
        self._body, self._retry_after_s = b"", 0.0
        self._sent = time.perf_counter()
        self._transport.write(self._generator.requests[self._turn])

    def data_received(self, data: bytes) -> None:
        """Feed the parser, which calls the methods below."""
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Look for `Retry-After`."""
        if name.lower() == b"retry-after":
            self._retry_after_s = float(value)

    def on_body(self, body: bytes) -> None:
        """Keep the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """Count the answer and send the next request, at once or when the server wants it."""
        status = self._parser.get_status_code()
        self._generator.note(status, self._body, self._turn, time.perf_counter() - self._sent)
        self._sent = 0.0
        if not self._parser.should_keep_alive() and self._transport is not None:
            self._transport.close()
        elif self._retry_after_s:
            self._generator.loop.call_later(self._retry_after_s, self._send)
        else:
            self._send()

    def connection_lost(self, _error: Exception | None) -> None:
        """Connect again."""
        broken = self._sent > 0 and not self._generator.stopping
        self._transport = None
        self._generator.replace(self._turn, broken=broken)


class Generator:
    """All connections of one load."""

    def __init__(self, load: Load) -> None:
        self.loop = asyncio.get_running_loop()
        self.requests = [base64.b64decode(one) for one in load.requests]
        self.stopping = False
        self._load = load
        self._find_label = re.compile(load.pattern.encode()).search
        self._labels = [str(label).encode() for label in load.labels]
        self._tally = Tally()
        self._open: set[asyncio.Task[None]] = set()
        self._lost = 0
        self._all_lost = asyncio.Event()

    async def run(self) -> Outcome:
        """Warm up, measure, drain."""
        for turn in range(self._load.connections):
            self._connect(turn)
        await asyncio.sleep(self._load.warm_up_s)
        self._tally.latencies.clear()
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(self._load.seconds)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        latencies = sorted(self._tally.latencies)
        self.stopping = True
        await self._drain()
        return self._outcome(latencies, seconds, cpu)

    def note(self, status: int, body: bytes, turn: int, seconds: float) -> None:
        """Count one answer."""
        self._tally.statuses[status] += 1
        if status != 200:
            return
        self._tally.latencies.append(seconds)
        found = self._find_label(body)
        if found is None or found[1] != self._labels[turn]:
            self._tally.wrong += 1

    def replace(self, turn: int, *, broken: bool) -> None:
        """Open a new connection for one that is gone."""
        self._tally.failures += broken
        if self.stopping:
            self._lost += 1
            if self._lost == self._load.connections:
                self._all_lost.set()
        else:
            self.loop.call_later(RECONNECT_S, self._connect, turn)

    def _connect(self, turn: int) -> None:
        task = self.loop.create_task(self._open_connection(turn))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _open_connection(self, turn: int) -> None:
        try:
            await self.loop.create_connection(
                lambda: Connection(self, turn), "127.0.0.1", self._load.port
            )
        except OSError:
            self.replace(turn, broken=True)

    async def _drain(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_lost.wait(), DRAIN_S)

    def _outcome(self, latencies: list[float], seconds: float, cpu: float) -> Outcome:
        def percentile(share: float) -> float:
            if not latencies:
                return 0.0
            return 1000 * latencies[min(len(latencies) - 1, int(share * len(latencies)))]

        return Outcome(
            rate=len(latencies) / seconds,
            p50_ms=percentile(0.5),
            p99_ms=percentile(0.99),
            max_ms=percentile(1),
            statuses={str(status): count for status, count in self._tally.statuses.items()},
            wrong=self._tally.wrong,
            failures=self._tally.failures,
            client_cpu=cpu / seconds,
        )


def generate(load: Load) -> Outcome:
    """Run a load in a process of its own."""
    limit_s = load.warm_up_s + load.seconds + DRAIN_S + 30
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.load.client"],
        input=json.dumps(asdict(load)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=limit_s,
    )
    return Outcome(**json.loads(finished.stdout))


def main() -> None:
    """Read a load, run it, write the outcome."""
    load = Load(**json.load(sys.stdin))

    async def run() -> Outcome:
        return await Generator(load).run()

    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(asdict(runner.run(run())), sys.stdout)


if __name__ == "__main__":
    main()
