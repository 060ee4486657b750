"""Load on a service: what mixed requests and a quiet client get, and whether it grows."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import subprocess
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from PIL import Image

from service.pictures import SAMPLES
from tests.attack.runner import HONEST, MAX_MEMORY
from tests.attack.service import Service, started, warm_up
from tests.fire.generator import Asked, Load, Seen, finish, pictures, quiet_client, start

FACTORS = (0.5, 1, 2, 5, 10)
"""Of the rate that saturates the service."""
MIN_GOODPUT = 0.8
"""Of what the saturated service answers, under any overload."""

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
_FIGURES = re.compile(r"(<!-- (?P<part>.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass
class Table:
    """Figures, and which promises they break."""

    part: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Promises that were broken."""

    def add(self, *cells: object, faults: list[str] | None = None) -> None:
        """A further row; the first cell names it."""
        self.rows.append([str(cell) for cell in cells])
        self.faults += [f"{cells[0]}: {fault}" for fault in faults or []]

    def markdown(self) -> str:
        """The table as the page has it."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write(tables: list[Table], page: Path = PAGE) -> None:
    """Put each table where the page names its part; the others stay."""
    known = {table.part: table for table in tables}

    def replace(found: re.Match[str]) -> str:
        table = known.get(found["part"])
        return f"{found[1]}\n{table.markdown()}\n\n{found[3]}" if table else found[0]

    page.write_text(_FIGURES.sub(replace, page.read_text()))


def faults_of(seen: Seen) -> list[str]:
    """What an overloaded service may not do."""
    allowed = {*map(str, HONEST), "429"}
    found = [f"{count} x {what}" for what, count in seen.missed.items() if what not in allowed]
    odd = seen.statuses.keys() - HONEST - {200, 429}
    return found + [f"{seen.statuses[status]} x {status}" for status in sorted(odd)]


def mixed() -> list[Asked]:
    """Requests to several routes, each with the label of its answer, where it has one."""
    routes = ("/perturb?dim=4&delta=0.1", "/sweep", "/equivariance?transform=turn")
    made: list[Asked] = []
    for number, asked in enumerate(pictures()):
        made.append(asked)
        if number % 3 == 0:
            made.append(asked._replace(path=routes[number // 3 % 3], label=None))
        if number % 10 == 0:
            made.append(Asked("/segment", pair(number // 3, (number // 3 + 3) % 10)))
    return made


@cache
def pair(first: int, second: int) -> bytes:
    """Two digits over one another, as a PNG."""
    canvas, file = Image.new("L", (36, 36)), io.BytesIO()
    for label, at in ((first, 0), (second, 8)):
        image = Image.open(SAMPLES / f"{label}.png").convert("L")
        canvas.paste(255, (at, at, at + 28, at + 28), image)
    canvas.save(file, "PNG")
    return file.getvalue()


def large() -> list[Asked]:
    """A request of 256 pictures."""
    images = [base64.b64encode(asked.content).decode() for asked in pictures() * 9][:256]
    body = json.dumps({"images": images}).encode()
    return [Asked("/classify", body, "application/json")]


def begin(
    service: Service,
    requests: list[Asked],
    *,
    rate: float = 0,
    connections: int = 0,
    seconds: float,
) -> subprocess.Popen[bytes]:
    """Send requests at a rate, or over connections that wait for their answers."""
    load = Load(
        target=service.target,
        requests=requests,
        rate=rate,
        connections=connections,
        seconds=seconds,
        source="127.0.0.77",
    )
    return start(load)


def saturation(service: Service, seconds: float) -> Seen:
    """What 32 connections get, which is all that the service can do."""
    return finish(begin(service, mixed(), connections=32, seconds=seconds))


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

    def add(name: str, seen: Seen, mib: float, faults: list[str]) -> None:
        late = seen.statuses[503] + seen.statuses[504]
        cells = (f"{seen.sent / seconds:.0f}", f"{seen.rate:.0f}", times(seen))
        table.add(name, *cells, seen.statuses[429], late, f"{mib:.0f}", faults=faults)

    with started("open", **environment) as service:
        if memory:
            asyncio.run(warm_up(service.target))
        saturation(service, min(2, seconds))
        before, most = service.memory_mib(), saturation(service, seconds)
        add("32 connections that wait for answers", most, before, faults_of(most))
        for factor in factors:
            seen = finish(begin(service, mixed(), rate=factor * most.rate, seconds=seconds))
            after, faults = service.memory_mib(), faults_of(seen)
            aim = min_goodput * min(1, factor) * most.rate
            if seen.rate < aim:
                faults.append(f"{seen.rate:.0f} right answers a second, not {aim:.0f}")
            if memory and after > MAX_MEMORY * before:
                faults.append(f"memory {before:.0f} to {after:.0f} MiB")
            add(f"constant rate, {factor:g} times the first row", seen, after, faults)
    return table


def times(seen: Seen) -> str:
    """Two percentiles."""
    return f"{seen.p50_ms:.0f}, {seen.p99_ms:.0f}"


def quiet_client_beside_others(
    *, seconds: float = 8, workers: tuple[int, ...] = (1, 2, 4)
) -> Table:
    """Ten requests a second, next to four times what the service can answer, and large requests."""
    columns = ["workers", "others", "answered, refused once, failed", "p50, p99 ms", "others/s"]
    table = Table("A quiet client of ten requests a second", columns)

    def measure(name: str, service: Service, others: subprocess.Popen[bytes] | None) -> None:
        client = quiet_client(service.target)
        time.sleep(seconds)
        seen = finish(client)
        loud = finish(others) if others else Seen()
        # Refused twice: a client without a limit for each has no share of its own.
        faults = [f"{count} x {what}" for what, count in seen.missed.items() if what != "429"]
        row = f"{seen.right}, {seen.refused}, {seen.missed.total()}"
        other = f"{loud.rate:.1f}" if others else "-"
        table.add(count, name, row, times(seen), other, faults=faults + faults_of(loud))

    for count in workers:
        with started("open", CAPSNET_WORKERS=str(count)) as service:
            asyncio.run(warm_up(service.target))
            rate = 4 * saturation(service, 3).rate
            flood = f"{rate:.0f} mixed requests a second"
            measure("none", service, None)
            measure(flood, service, begin(service, mixed(), rate=rate, seconds=seconds))
            heavy = begin(service, large(), connections=2, seconds=seconds)
            measure("two clients of 256 pictures a request", service, heavy)
        limit = rate / 8 / count  # half of what the service can do
        flood += f", limited to {limit:.0f} rows a second by each worker"
        settings = {"CAPSNET_WORKERS": str(count), "CAPSNET_RATE_LIMIT_PER_KEY": f"{limit:.0f}"}
        with started("open", **settings) as service:
            asyncio.run(warm_up(service.target))
            measure(flood, service, begin(service, mixed(), rate=rate, seconds=seconds))
    return table
