"""Load on a service: what mixed requests and a quiet client get."""

from __future__ import annotations

import asyncio
import io
import subprocess
import time
from collections.abc import Iterator
from functools import cache

from PIL import Image

from service.pictures import SAMPLES
from tests.attack.cases import HONEST
from tests.attack.client import Report as Quiet
from tests.attack.client import pictures, start_client, stop_client
from tests.attack.generator import Load, Outcome, encode, finish, start
from tests.attack.runner import MAX_MEMORY
from tests.attack.service import Service, started, warm_up
from tests.attack.wire import Connection, Target, request, several
from tests.fire.table import Table

FACTORS = (0.5, 1, 2, 5, 10)
"""Of the rate that saturates the service."""
MIN_GOODPUT = 0.8
"""Of what the saturated service answers, under any overload."""
_SOURCE = "127.0.0.77"


def faults_of(load: Outcome) -> list[str]:
    """What an overloaded service may not do."""
    found = [f"{load.wrong} wrong answers"] if load.wrong else []
    if load.failures:
        reasons = ", ".join(f"{count} {why}" for why, count in load.missed.items())
        found.append(f"{load.failures} lost of {reasons}")
    odd = {int(status) for status in load.statuses} - HONEST - {200, 429}
    return found + [f"{load.statuses[str(status)]} x {status}" for status in sorted(odd)]


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


def begin(service: Service, mode: str, amount: float, seconds: float) -> subprocess.Popen[str]:
    """A generator in a process of its own.

    Args:
        service: that is loaded.
        mode: `open` sends so many mixed requests a second; `closed` has so many connections, each
            of which waits for its answer, and so has `large` with requests of 256 pictures.
        amount: of requests a second, or of connections.
        seconds: how long.
    """
    files = [content for _, content, _ in pictures()]
    large = several("/classify", [files[number % len(files)] for number in range(256)])
    requests = [(None, large)] if mode == "large" else mixed()
    load = Load(
        port=service.target.port,
        requests=encode(data for _, data in requests),
        labels=[label for label, _ in requests],
        rate=amount if mode == "open" else 0.0,
        connections=0 if mode == "open" else int(amount),
        seconds=seconds,
        source=_SOURCE,
    )
    return start(load)


def saturation(service: Service, seconds: float) -> Outcome:
    """What 32 connections get, which is all that the service can do."""
    return finish(begin(service, "closed", 32, seconds))


def overload(
    *,
    seconds: float = 10,
    factors: tuple[float, ...] = FACTORS,
    min_goodput: float = MIN_GOODPUT,
    memory: bool = True,
    **environment: str,
) -> Table:
    """Mixed requests at constant rates around what two workers can answer.

    Args:
        seconds: of each load.
        factors: of the rate that saturates the service, one load each.
        min_goodput: of what the saturated service answers.
        memory: whether memory is judged, for which all that is used first is used before.
        environment: further settings of the service.
    """
    columns = ["arrivals", "sent/s", "right/s", "p50, p99 ms", "429", "503, 504", "MiB"]
    table = Table("Load: mixed requests, two workers", columns)
    with started("open", **environment) as service:
        if memory:
            asyncio.run(warm_up(service.target))
        saturation(service, min(2, seconds))
        before, most = service.memory_mib(), saturation(service, seconds)
        _add(table, "32 connections that wait for answers", most, before, faults_of(most))
        for factor in factors:
            found = finish(begin(service, "open", factor * most.rate, seconds))
            after, faults = service.memory_mib(), faults_of(found)
            aim = min_goodput * min(1, factor) * most.rate
            if found.rate < aim:
                faults.append(f"{found.rate:.0f} right answers a second, not {aim:.0f}")
            if memory and after > MAX_MEMORY * before:
                faults.append(f"memory {before:.0f} to {after:.0f} MiB")
            _add(table, f"constant rate, {factor:g} times the first row", found, after, faults)
    return table


def _add(table: Table, name: str, load: Outcome, memory_mib: float, faults: list[str]) -> None:
    late = sum(load.statuses.get(one, 0) for one in ("503", "504"))
    table.add(
        name,
        f"{load.sent / load.seconds:.0f}",
        f"{load.rate:.0f}",
        f"{load.p50_ms:.0f}, {load.p99_ms:.0f}",
        load.statuses.get("429", 0),
        late,
        f"{memory_mib:.0f}",
        faults=faults,
    )


def quiet_client(*, seconds: float = 8, workers: tuple[int, ...] = (1, 2, 4)) -> Table:
    """Ten requests a second, next to four times what the service can answer, and large requests."""
    columns = ["workers", "others", "answered, refused once, failed", "p50, p99 ms", "others/s"]
    table = Table("A quiet client of ten requests a second", columns)
    for count in workers:
        with started("open", CAPSNET_WORKERS=str(count)) as service:
            asyncio.run(warm_up(service.target))
            rate = 4 * saturation(service, 3).rate
            flood = f"{rate:.0f} mixed requests a second"
            _add_quiet(table, count, "none", _beside(service, "closed", 0, seconds))
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


def _beside(service: Service, mode: str, amount: float, seconds: float) -> tuple[Quiet, Outcome]:
    """What a quiet client and a load generator see."""
    generator, client = begin(service, mode, amount, seconds), start_client(service.target)
    time.sleep(seconds)
    return stop_client(client), finish(generator)


def _add_quiet(table: Table, workers: int, name: str, found: tuple[Quiet, Outcome]) -> None:
    seen, others = found
    failed = sum(seen.failures.values())
    # Refused twice: a client without a limit for each has no share of its own.
    faults = [f"{count} x {what}" for what, count in seen.failures.items() if what != "429"]
    table.add(
        f"{workers}",
        name,
        f"{seen.answered}, {seen.refused}, {failed}",
        f"{seen.p50_ms:.0f}, {seen.p99_ms:.0f}",
        f"{others.rate:.1f}" if others.sent else "-",
        faults=faults + faults_of(others),
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
