"""The load generator, in a process of its own: a `Load` as JSON on stdin, an `Outcome` on stdout.

The load of `make fire` and the well-behaved client of `make attack` use it. Either each of some
connections sends its next request when the last was answered, or requests are sent when they are
due, however long the answers take; a request's time then runs from when it was due. Every answer's
label is checked. Written close to the sockets, because on a small machine a client's cost is taken
from the server that it measures.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import math
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import httptools
import uvloop

RECONNECT_S = 0.05
DRAIN_S = 10.0
"""Longest wait for requests in flight at the end of a measurement."""
MAX_RETRY_S = 10.0
"""A longer `Retry-After` is not waited for."""
LABEL = r'"label": ?(\d+)'
"""Finds the label in an answer of this service."""
REFUSED, CLOSED, SILENT, WRONG = "refused", "closed", "timeout", "wrong label"
"""What may come in place of a status and a right label."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Load:
    """What to send, and how much of it."""

    port: int
    requests: list[str]
    """Whole HTTP requests, base64, in turn."""
    labels: list[int | None]
    """What their answers must say, if that is known."""
    pattern: str = LABEL
    """Finds the label in an answer's body."""
    connections: int = 0
    """So many wait for their answers; 0 where requests come at a rate."""
    rate: float = 0.0
    """Requests a second."""
    at_random: bool = False
    """Whether arrivals are those of many independent clients (Poisson); else gaps are equal."""
    warm_up_s: float = 0.0
    seconds: float = 0.0
    """0: until the input is closed."""
    source: str = "127.0.0.1"
    """The address of the client."""
    patience_s: float = 40.0
    """An answer that takes longer counts as none. Only where requests come at a rate."""
    retries: bool = False
    """Whether a refused request is sent once more after `Retry-After`, and its time begins anew."""
    half_anew: bool = False
    """Whether every second request has a connection of its own."""


@dataclass(frozen=True)
class Outcome:
    """What came of it. Times are those of right answers within the measured window."""

    seconds: float
    sent: int
    right: int
    """Answers with status 200 and the right label."""
    rate: float
    """Of those, a second."""
    p50_ms: float
    """Of them, as are the next two; NaN where there are none."""
    p99_ms: float
    max_ms: float
    statuses: dict[str, int]
    """All answers, with connections that wait also those before and after the window."""
    wrong: int
    """Answers with status 200 and another label."""
    failures: int
    """Requests without an answer: connections that were refused or broke, or it took too long."""
    refused: int
    """Requests that were sent a second time."""
    missed: dict[str, int]
    """No right answer in the end, by what came instead."""
    client_cpu: float
    """Cores that this process took."""


@dataclass(eq=False)
class Turn:
    """One request under way."""

    number: int
    due: float
    is_retry: bool = False
    was_sent: bool = False


class Connection(asyncio.Protocol):
    """One client's connection: sends one request at a time."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self.turn: Turn | None = None
        self.answered = 0
        self._body = b""
        self._retry_after_s = 0.0
        self._early_status = 0
        """That of an answer which came before a request, as where there is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what requests are written to."""
        self._transport = cast("asyncio.Transport", transport)

    def send(self, turn: Turn) -> None:
        """Send a request."""
        if self._early_status:
            status, self._early_status = self._early_status, 0
            self._generator.answer(self, turn, status, self._body, self._retry_after_s)
            return
        self.turn, self._body, self._retry_after_s = turn, b"", 0.0
        if self._transport is None:
            self._generator.lose(self, turn, CLOSED)
        else:
            self._transport.write(self._generator.request(turn))

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

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
        """Report the answer."""
        turn, self.turn = self.turn, None
        if not self._parser.should_keep_alive():
            self.close()
        status = self._parser.get_status_code()
        if turn is None:
            self._early_status = status
            return
        self.answered += 1
        self._generator.answer(self, turn, status, self._body, self._retry_after_s)

    def connection_lost(self, _error: Exception | None) -> None:
        """Report the loss."""
        turn, self.turn, self._transport = self.turn, None, None
        self._generator.lose(self, turn, CLOSED)

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent, once it is connected."""
        return self._transport is not None and not self._transport.is_closing()


class Generator:
    """All requests of one load."""

    def __init__(self, load: Load) -> None:
        self.loop = asyncio.get_running_loop()
        self._load = load
        self._requests = [base64.b64decode(request) for request in load.requests]
        self._find_label = re.compile(load.pattern.encode()).search
        self._labels = [None if one is None else str(one).encode() for one in load.labels]
        self._stopping = False
        self._counts_from = 0.0
        self._sent = self._wrong = self._refused = 0
        self._seconds: list[float] = []
        self._statuses: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self._under_way: set[Turn] = set()
        self._idle: list[Connection] = []
        self._connecting: set[asyncio.Task[None]] = set()

    async def run(self, over: asyncio.Event) -> Outcome:
        """Warm up, measure, drain. Without a number of seconds, measure until it is over."""
        began = time.perf_counter()
        self._counts_from = began + self._load.warm_up_s
        if self._load.connections or not self._load.rate:
            return await self._run_closed()
        cpu = time.process_time()
        for number, due in enumerate(self._due_times(began)):
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), due - time.perf_counter())
            if over.is_set():
                break
            self._begin(Turn(number, due))
        await self._drain()
        seconds = time.perf_counter() - self._counts_from
        return self._outcome(self._seconds, seconds, time.process_time() - cpu)

    async def _run_closed(self) -> Outcome:
        for number in range(self._load.connections):
            self._begin(Turn(number, time.perf_counter()))
        await asyncio.sleep(self._load.warm_up_s)
        self._seconds.clear()
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(self._load.seconds)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        measured = self._seconds.copy()
        await self._drain()
        return self._outcome(measured, seconds, cpu)

    def _due_times(self, began: float) -> Iterable[float]:
        """When requests are due."""
        gap = random.Random(1).expovariate  # noqa: S311  no secret
        rate, after, number = self._load.rate, 0.0, 0
        while not self._load.seconds or after < self._load.seconds:
            yield began + after
            number += 1
            after = after + gap(rate) if self._load.at_random else number / rate

    def request(self, turn: Turn) -> bytes:
        """The bytes of a request."""
        return self._requests[turn.number % len(self._requests)]

    def answer(
        self, connection: Connection, turn: Turn, status: int, body: bytes, retry_after_s: float
    ) -> None:
        """Count an answer, and send what follows it."""
        self._under_way.discard(turn)
        seconds = time.perf_counter() - turn.due
        is_refusal = status in (429, 503) and 0 < retry_after_s <= MAX_RETRY_S
        is_counted = bool(self._load.connections) or turn.due >= self._counts_from
        if is_counted:
            self._statuses[str(status)] += 1
        if is_refusal and self._load.retries and not turn.is_retry:
            self._refused += 1
            due = time.perf_counter() + retry_after_s
            again = Turn(turn.number, due, is_retry=True, was_sent=True)
            self._under_way.add(again)
            self.loop.call_later(retry_after_s, self._begin, again)
        elif is_counted:
            self._judge(turn, status, body, seconds)
        if self._load.connections and retry_after_s:
            self.loop.call_later(retry_after_s, self._continue, connection, turn)
        elif self._load.connections:
            self._continue(connection, turn)
        elif self._load.half_anew and turn.number % 2:
            connection.close()
        elif connection.is_open:
            self._idle.append(connection)

    def _judge(self, turn: Turn, status: int, body: bytes, seconds: float) -> None:
        if status != 200:
            self._missed[str(status)] += 1
        elif self._load.rate and seconds > self._load.patience_s:
            self._missed[SILENT] += 1
        elif not self._is_right(turn, body):
            self._wrong += 1
            self._missed[WRONG] += 1
        else:
            self._seconds.append(seconds)

    def _is_right(self, turn: Turn, body: bytes) -> bool:
        label = self._labels[turn.number % len(self._labels)]
        if label is None:
            return True
        found = self._find_label(body)
        return found is not None and found[1] == label

    def lose(self, connection: Connection, turn: Turn | None, why: str) -> None:
        """Count a request whose connection is gone; one that was idle may end at any time."""
        if connection in self._idle:
            self._idle.remove(connection)
        if turn is None:
            return
        self._under_way.discard(turn)
        if connection.answered and not self._load.connections:
            self._begin(turn)
            return
        if not self._stopping or self._load.rate:
            self._missed[why] += 1
        if self._load.connections:
            self.loop.call_later(RECONNECT_S, self._continue, connection, turn)

    def _continue(self, connection: Connection, turn: Turn) -> None:
        """Send the next request over a connection that waits, or over another in its place."""
        if self._stopping:
            connection.close()
            return
        following = Turn(turn.number + 1, time.perf_counter())
        if connection.is_open:
            self._send(connection, following)
        else:
            self._begin(following)

    def _begin(self, turn: Turn) -> None:
        """Send a request over an idle connection, or over a new one."""
        self._under_way.add(turn)
        anew = self._load.half_anew and turn.number % 2
        while self._idle and not anew:
            if (connection := self._idle.pop()).is_open:
                self._send(connection, turn)
                return
        task = self.loop.create_task(self._connect(turn))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def _send(self, connection: Connection, turn: Turn) -> None:
        self._under_way.add(turn)
        self._count_sent(turn)
        connection.send(turn)

    def _count_sent(self, turn: Turn) -> None:
        self._sent += not turn.was_sent
        turn.was_sent = True

    async def _connect(self, turn: Turn) -> None:
        connection = Connection(self)
        source = (self._load.source, 0)
        try:
            await self.loop.create_connection(
                lambda: connection, "127.0.0.1", self._load.port, local_addr=source
            )
        except OSError:
            self._count_sent(turn)
            self.lose(connection, turn, REFUSED)
            return
        self._send(connection, turn)

    async def _drain(self) -> None:
        """Wait for what is under way. What is then not answered counts as lost."""
        self._stopping = True
        limit_s = self._load.patience_s if self._load.rate else DRAIN_S
        until = time.perf_counter() + limit_s
        while self._under_way and time.perf_counter() < until:  # noqa: ASYNC110  of many requests
            await asyncio.sleep(0.01)
        if self._load.rate:
            self._missed[SILENT] += len(self._under_way)
        for connection in self._idle.copy():
            connection.close()

    def _outcome(self, measured: list[float], seconds: float, cpu: float) -> Outcome:
        ordered = sorted(measured) or [math.nan]

        def percentile(share: float) -> float:
            return 1000 * ordered[max(0, math.ceil(share * len(ordered)) - 1)]

        return Outcome(
            seconds=seconds,
            sent=self._sent,
            right=len(measured),
            rate=len(measured) / seconds,
            p50_ms=percentile(0.5),
            p99_ms=percentile(0.99),
            max_ms=percentile(1),
            statuses=dict(self._statuses),
            wrong=self._wrong,
            failures=sum(self._missed[why] for why in (REFUSED, CLOSED, SILENT)),
            refused=self._refused,
            missed=dict(+self._missed),
            client_cpu=cpu / seconds,
        )


def encode(requests: Iterable[bytes]) -> list[str]:
    """Requests as a load has them."""
    return [base64.b64encode(request).decode() for request in requests]


def start(load: Load) -> subprocess.Popen[str]:
    """Begin a load in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.attack.generator"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(asdict(load)) + "\n")
    process.stdin.flush()
    process.stdout.readline()  # it has begun
    return process


def finish(process: subprocess.Popen[str], *, limit_s: float = 300) -> Outcome:
    """Wait for a load that was begun. One without a number of seconds ends now."""
    output, _ = process.communicate(timeout=limit_s)
    return Outcome(**json.loads(output))


def generate(load: Load) -> Outcome:
    """Run a load in a process of its own."""
    limit_s = load.warm_up_s + load.seconds + max(DRAIN_S, load.patience_s) + 30
    return finish(start(load), limit_s=limit_s)


def main() -> None:
    """Read a load, run it, write the outcome."""
    load = Load(**json.loads(sys.stdin.readline()))

    async def run() -> Outcome:
        over = asyncio.Event()
        print("begun", flush=True)
        if not (load.seconds or load.connections):
            reading = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
            reading.add_done_callback(lambda _: over.set())
        return await Generator(load).run(over)

    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        json.dump(asdict(runner.run(run())), sys.stdout)


if __name__ == "__main__":
    main()
