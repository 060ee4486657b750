"""Load on a service: a generator of requests, and what they and a quiet client get.

`python -m tests.fire.load PORT open RATE SECONDS` sends requests at a constant rate, however slow
the answers are; `closed CONNECTIONS SECONDS` has each connection wait for its answer.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache

import uvloop
from PIL import Image

from service.pictures import SAMPLES
from tests.attack.cases import HONEST
from tests.attack.client import Report as Quiet
from tests.attack.client import pictures
from tests.attack.runner import MAX_MEMORY, start_client, stop_client
from tests.attack.service import ROOT, Service, started, warm_up
from tests.attack.wire import CLOSED, SILENT, Answer, Connection, Target, request, several
from tests.fire.table import Table

FACTORS = (0.5, 1, 2, 5, 10)
"""Of the rate that saturates the service."""
MIN_GOODPUT = 0.8
"""Of what the saturated service answers, under any overload."""
_SOURCE = "127.0.0.77"


@dataclass
class Load:
    """What a generator saw."""

    seconds: float
    sent: int
    right: int
    wrong: int
    lost: int
    statuses: dict[str, int]
    p50_ms: float
    """Of right answers, from when the request was due."""
    p99_ms: float

    @property
    def goodput(self) -> float:
        """Right answers a second."""
        return self.right / self.seconds

    def faults(self) -> list[str]:
        """What an overloaded service may not do."""
        found = [f"{self.wrong} wrong answers"] if self.wrong else []
        found += [f"{self.lost} lost"] if self.lost else []
        odd = {int(one) for one in self.statuses} - HONEST - {200, 429}
        return found + [f"{self.statuses[str(one)]} x {one}" for one in sorted(odd)]


def mixed() -> list[tuple[int | None, bytes]]:
    """Requests to several routes, each with the label of its answer, where it has one."""
    made: list[tuple[int | None, bytes]] = []
    for number, (label, content, kind) in enumerate(pictures()):
        made.append((label, request("/classify", content, kind=kind)))
        if number % 3 == 0:
            route = ("/perturb?dim=4&delta=0.1", "/sweep", "/equivariance?transform=turn")
            made.append((None, request(route[number // 3 % 3], content, kind=kind)))
        if number % 10 == 0:
            made.append((None, request("/segment", pair(label, (label + 3) % 10))))
    return made


@cache
def pair(first: int, second: int) -> bytes:
    """Two digits over one another, as a PNG."""
    images = [Image.open(SAMPLES / f"{label}.png").convert("L") for label in (first, second)]
    canvas = Image.new("L", (36, 36))
    for image, corner in zip(images, ((0, 0), (8, 8)), strict=True):
        canvas.paste(255, (*corner, corner[0] + 28, corner[1] + 28), image)
    file = io.BytesIO()
    canvas.save(file, "PNG")
    return file.getvalue()


class Generator:
    """Sends requests in turn, over connections that are kept."""

    def __init__(self, port: int, requests: list[tuple[int | None, bytes]]) -> None:
        self._target, self._requests = Target(port), requests
        self._idle: list[Connection] = []
        self._seconds: list[float] = []
        self._statuses: Counter[str] = Counter()
        self._sent = self._wrong = self._lost = 0

    async def open(self, rate: float, seconds: float) -> None:
        """Send so many a second, whether earlier ones were answered or not."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(int(rate * seconds)):
                due = began + number / rate
                await asyncio.sleep(due - time.monotonic())
                group.create_task(self._ask(number, due))

    async def closed(self, connections: int, seconds: float) -> None:
        """Send the next over each connection when the one before is answered."""
        until = time.monotonic() + seconds

        async def repeat(first: int) -> None:
            number = first
            while time.monotonic() < until:
                await self._ask(number, time.monotonic())
                number += connections

        await asyncio.gather(*map(repeat, range(connections)))

    def load(self, seconds: float) -> Load:
        """What was seen in so many seconds."""
        ordered = sorted(self._seconds) or [math.nan]
        p50_ms, p99_ms = (1000 * ordered[math.ceil(q * len(ordered)) - 1] for q in (0.5, 0.99))
        counts = self._sent, len(self._seconds), self._wrong, self._lost
        return Load(seconds, *counts, dict(self._statuses), p50_ms, p99_ms)

    async def _ask(self, number: int, due: float) -> None:
        label, data = self._requests[number % len(self._requests)]
        self._sent += 1
        answer = await self._exchange(data)
        if not isinstance(answer.outcome, int):
            self._lost += 1
            return
        self._statuses[str(answer.outcome)] += 1
        if answer.outcome != 200:
            return
        if label is None or json.loads(answer.body)["predictions"][0]["label"] == label:
            self._seconds.append(time.monotonic() - due)
        else:
            self._wrong += 1

    async def _exchange(self, data: bytes) -> Answer:
        while self._idle:
            connection = self._idle.pop()
            answer = await connection.exchange(data)
            if answer.outcome != CLOSED:  # an idle connection may be closed at any time
                return self._keep(connection, answer)
            connection.close()
        try:
            connection = await Connection.open(self._target, source=_SOURCE)
        except OSError:
            return Answer(SILENT)
        return self._keep(connection, await connection.exchange(data))

    def _keep(self, connection: Connection, answer: Answer) -> Answer:
        if isinstance(answer.outcome, int) and b"connection: close" not in answer.head.lower():
            self._idle.append(connection)
        else:
            connection.close()
        return answer


def begin(service: Service, mode: str, amount: float, seconds: float) -> subprocess.Popen[str]:
    """A generator in a process of its own."""
    port = str(service.target.port)
    command = [sys.executable, "-m", "tests.fire.load", port, mode, str(amount), str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def finish(generator: subprocess.Popen[str]) -> Load:
    """What it saw."""
    output, _ = generator.communicate(timeout=300)
    return Load(**json.loads(output))


def saturation(service: Service, seconds: float) -> Load:
    """What 32 connections get, which is all that the service can do."""
    return finish(begin(service, "closed", 32, seconds))


def overload(
    *,
    seconds: float = 10,
    factors: tuple[float, ...] = FACTORS,
    least_goodput: float = MIN_GOODPUT,
) -> Table:
    """Mixed requests at constant rates around what two workers can answer."""
    columns = ["arrivals", "sent/s", "right/s", "p50, p99 ms", "429", "503, 504", "MiB"]
    table = Table("Load: mixed requests, two workers", columns)
    with started("open") as service:
        asyncio.run(warm_up(service.target))
        saturation(service, 2)
        before, most = service.memory_mib(), saturation(service, seconds)
        _add(table, "32 connections that wait for answers", most, before, most.faults())
        for factor in factors:
            found = finish(begin(service, "open", factor * most.goodput, seconds))
            after, faults = service.memory_mib(), found.faults()
            aim = least_goodput * min(1, factor) * most.goodput
            if found.goodput < aim:
                faults.append(f"{found.goodput:.0f} right answers a second, not {aim:.0f}")
            if after > MAX_MEMORY * before:
                faults.append(f"memory {before:.0f} to {after:.0f} MiB")
            _add(table, f"constant rate, {factor:g} times that", found, after, faults)
    return table


def _add(table: Table, name: str, load: Load, memory_mib: float, faults: list[str]) -> None:
    late = sum(load.statuses.get(one, 0) for one in ("503", "504"))
    table.add(
        name,
        f"{load.sent / load.seconds:.0f}",
        f"{load.goodput:.0f}",
        f"{load.p50_ms:.0f}, {load.p99_ms:.0f}",
        load.statuses.get("429", 0),
        late,
        f"{memory_mib:.0f}",
        faults=faults,
    )


def quiet_client(*, seconds: float = 8, workers: tuple[int, ...] = (1, 2, 4)) -> Table:
    """Ten requests a second, beside four times what the service can answer, and large requests."""
    columns = ["workers", "beside", "answered, refused once, failed", "p50, p99 ms", "others/s"]
    table = Table("A quiet client of ten requests a second", columns)
    for count in workers:
        with started("open", CAPSNET_WORKERS=str(count)) as service:
            asyncio.run(warm_up(service.target))
            rate = 4 * saturation(service, 3).goodput
            flood = f"{rate:.0f} mixed requests a second"
            _add_quiet(table, count, "nobody", _beside(service, "closed", 0, seconds))
            _add_quiet(table, count, flood, _beside(service, "open", rate, seconds))
            large = "two clients of 256 pictures a request"
            _add_quiet(table, count, large, _beside(service, "large", 2, seconds))
        limit = rate / 8 / count  # half of what the service can do
        flood += f", limited to {limit:.0f} rows a second by each worker"
        settings = {"CAPSNET_WORKERS": str(count), "CAPSNET_RATE_LIMIT_PER_KEY": f"{limit:.0f}"}
        with started("open", **settings) as service:
            asyncio.run(warm_up(service.target))
            _add_quiet(table, count, flood, _beside(service, "open", rate, seconds))
    return table


def _beside(service: Service, mode: str, amount: float, seconds: float) -> tuple[Quiet, Load]:
    """What a quiet client sees beside a generator, and what that sees."""
    generator, client = begin(service, mode, amount, seconds), start_client(service.target)
    time.sleep(seconds)
    return stop_client(client), finish(generator)


def _add_quiet(table: Table, workers: int, name: str, found: tuple[Quiet, Load]) -> None:
    seen, others = found
    failed = sum(seen.failures.values())
    # Refused twice: a client without a limit for each has no share of its own.
    faults = [f"{count} x {what}" for what, count in seen.failures.items() if what != "429"]
    table.add(
        f"{workers}",
        name,
        f"{seen.answered}, {seen.refused}, {failed}",
        f"{seen.p50_ms:.0f}, {seen.p99_ms:.0f}",
        f"{others.goodput:.1f}" if others.sent else "-",
        faults=faults + others.faults(),
    )


def stages(*, requests: int = 400, models: tuple[str, ...] = ("mnist", "mnist-attention")) -> Table:
    """What one connection costs beyond the inference, in microseconds."""
    columns = [
        "network",
        "whole exchange",
        "in the service",
        "decode",
        "queue",
        "inference",
        "rest",
    ]
    table = Table("One connection: medians, microseconds", columns)
    with started("open") as service:
        asyncio.run(warm_up(service.target))
        for name in models:
            found = asyncio.run(_times(service.target, name, requests))
            whole, total, *parts = (sorted(column)[len(column) // 2] for column in found)
            rest = whole - sum(parts)
            table.add(name, *(f"{value:,.0f}" for value in (whole, total, *parts, rest)))
    return table


async def _times(target: Target, name: str, requests: int) -> list[tuple[float, ...]]:
    data = request(f"/classify?model={name}", (SAMPLES / "7.png").read_bytes())
    connection = await Connection.open(target, source=_SOURCE)
    rows = []
    for number in range(requests + 20):
        began = time.perf_counter()
        answer = await connection.exchange(data)
        whole = 1e6 * (time.perf_counter() - began)
        if number >= 20:
            rows.append((whole, *_server_timing(answer.head)))
    connection.close()
    return list(zip(*rows, strict=True))


def _server_timing(head: bytes) -> Iterator[float]:
    """Microseconds in all, for decoding, in the queue and for the inference."""
    line = next(one for one in head.splitlines() if one.lower().startswith(b"server-timing:"))
    found = dict(part.strip().split(";dur=") for part in line.decode().split(":", 1)[1].split(","))
    for name in ("total", "preprocess", "queue", "compute"):
        yield 1000 * float(found.get(name, 0))


async def _main(port: int, mode: str, amount: float, seconds: float) -> None:
    files = [content for _, content, _ in pictures()]
    large = several("/classify", [files[number % len(files)] for number in range(256)])
    generator = Generator(port, [(None, large)] if mode == "large" else mixed())
    began = time.monotonic()
    if mode == "open":
        await generator.open(amount, seconds)
    else:
        await generator.closed(int(amount), seconds)  # by no connection, if it is nobody
    print(json.dumps(asdict(generator.load(time.monotonic() - began))))


if __name__ == "__main__":
    _port, _mode, _amount, _seconds = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as _runner:
        _runner.run(_main(int(_port), _mode, float(_amount), float(_seconds)))
