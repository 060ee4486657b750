"""Mixed load for long, with a reload a minute: memory, threads and descriptors do not grow."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx

from tests.attack.generator import finish
from tests.attack.service import ADMIN_KEY, Service, descendants, started, warm_up
from tests.fire.load import begin, faults_of, saturation
from tests.fire.table import Table
from tests.processes import PATIENCE_S, PLAIN

PART = 0.5
"""Of the rate that saturates the service."""
MAX_GROWTH = 1.05
"""Of the memory between the first quarter and the last."""
MAX_FURTHER = 8
"""Threads and descriptors in the last quarter, beyond those in the first."""
_SAMPLE_S = 2.0


_ESTABLISHED = "01"
"""In the list of the kernel's connections."""


class Sample(NamedTuple):
    """What all processes of a service hold."""

    memory_mib: float
    threads: float
    descriptors: float
    """Without those of connections with clients."""


def soak(*, seconds: float = 300, period_s: float = 60) -> Table:
    """Load a service with mixed requests at half of what saturates it, and reload it meanwhile."""
    table = Table("Soak", ["", "first quarter", "last quarter"])
    with started("admin") as service:
        asyncio.run(warm_up(service.target))
        rate = PART * saturation(service, 5).rate
        generator = begin(service, "open", rate, seconds)
        began, samples, reloads = time.monotonic(), list[Sample](), 0
        while (now := time.monotonic() - began) < seconds:
            if now > (reloads + 1) * period_s:
                _reload(service)
                reloads += 1
            samples.append(sample(service))
            time.sleep(_SAMPLE_S)
        found = finish(generator)
        quarter = len(samples) // 4
        first, last = (
            Sample(*map(median, zip(*part, strict=True)))
            for part in (samples[:quarter], samples[-quarter:])
        )
    faults = faults_of(found)
    if found.right != found.sent:
        faults.append(f"{found.right} of {found.sent} answered right: {found.statuses}")
    if last.memory_mib > MAX_GROWTH * first.memory_mib:
        faults.append("memory grows")
    if max(last.threads - first.threads, last.descriptors - first.descriptors) > MAX_FURTHER:
        faults.append("threads or descriptors grow")
    name = f"{seconds / 60:.0f} minutes, {found.sent / seconds:.0f} requests a second"
    table.columns[0] = f"{name}, {reloads} reloads"
    table.add("memory, MiB", f"{first.memory_mib:.0f}", f"{last.memory_mib:.0f}", faults=faults)
    table.add("threads", f"{first.threads:.0f}", f"{last.threads:.0f}")
    table.add("descriptors, no connections", f"{first.descriptors:.0f}", f"{last.descriptors:.0f}")
    table.add("right answers", "", f"{found.right} of {found.sent}")
    table.add("p50, p99 ms", "", f"{found.p50_ms:.0f}, {found.p99_ms:.0f}")
    return table


def sample(service: Service) -> Sample:
    """What all processes hold now."""
    threads = descriptors = 0
    for pid in [service.pid, *descendants(service.pid)]:
        with suppress(OSError):
            threads += len(list(Path(f"/proc/{pid}/task").iterdir()))
            descriptors += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Sample(service.memory_mib(), threads, descriptors - _connections(service.target.port))


def _connections(port: int) -> int:
    """How many connections of clients the owner of a port has accepted and not closed."""
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, *_, inode = line.split()[:10]
        count += local.endswith(f":{port:04X}") and state == _ESTABLISHED and inode != "0"
    return count


def _reload(service: Service) -> None:
    url = f"http://127.0.0.1:{service.target.port}/models/reload"
    headers = {"X-API-Key": ADMIN_KEY}
    answer = httpx.post(url, headers=headers, timeout=PATIENCE_S, verify=PLAIN)
    assert answer.status_code == httpx.codes.OK, answer.text
