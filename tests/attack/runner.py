"""Runs attacks on a service while a well-behaved client asks, and judges what came of it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.attack.cases import Case, Site
from tests.attack.client import Report, start_client, stop_client
from tests.attack.service import Service
from tests.attack.wire import Outcome, exchange, request

ATTACK_LIMIT_S = 45.0
"""Beyond its own seconds, what an attack may take before it is ended."""
MEMORY_RETURNS_S = 15.0
RECOVERS_S = 30.0
MAX_MEMORY = 1.2
"""Of what it was before."""
MAX_REFUSED = 0.1
"""Of all well-behaved requests, those that may be refused once."""
_NICENESS = 10
_SAMPLE_S = 0.5


@dataclass(frozen=True)
class Limits:
    """What a well-behaved client is promised while others attack."""

    p99_ms: float = 1_000
    memory: bool = True
    """Whether memory is judged."""


@dataclass
class Result:
    """What came of one attack."""

    name: str
    title: str
    door: str
    outcomes: Counter[Outcome]
    client: Report
    before_mib: float
    peak_mib: float
    after_mib: float
    seconds: float
    faults: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all went as it should."""
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        outcomes = {str(outcome): count for outcome, count in self.outcomes.items()}
        return {**vars(self), "outcomes": outcomes, "client": vars(self.client), "ok": self.ok}


def run(cases: Sequence[Case], service: Service, *, seconds: float, limits: Limits) -> list[Result]:
    """Run attacks at once, next to one client; each has a result."""
    before, logged, began = service.memory_mib(), service.log.stat().st_size, time.monotonic()
    with sampled(service) as samples:
        beside = None if cases[0].fatal else start_client(service.target)
        sites = attack(cases, service, seconds)
        time.sleep(0 if cases[0].fatal else 1)
        seen = stop_client(beside) if beside else Report()
    after = before if cases[0].fatal else memory_after(service, before)
    shared = Result(
        *("", "", "", Counter()), seen, before, max(samples), after, time.monotonic() - began
    )
    faults = judge(shared, service, logged, limits, fatal=cases[0].fatal)
    return [
        replace(
            shared,
            name=case.name,
            title=case.title,
            door=case.door,
            outcomes=site.outcomes,
            faults=case.judge(site.outcomes) + faults,
        )
        for case, site in zip(cases, sites, strict=True)
    ]


def judge(
    found: Result, service: Service, logged: int, limits: Limits, *, fatal: bool
) -> list[str]:
    """What is wrong with what others noticed, with the memory and with the log."""
    traces = Counter(service.tracebacks(logged))
    faults, seen = [f"{count} x {one}" for one, count in traces.items()], found.client
    if fatal:
        return faults
    if not service.alive:
        faults.append("the service ended")
    asked = seen.answered + sum(seen.failures.values())
    faults += [f"{count} of {asked} others: {what}" for what, count in seen.failures.items()]
    if not seen.p99_ms < limits.p99_ms:  # nan is none
        faults.append(f"p99 of others {seen.p99_ms:,.0f} ms")
    if seen.refused > MAX_REFUSED * asked:
        faults.append(f"{seen.refused} of {asked} others refused once")
    if limits.memory and found.after_mib > MAX_MEMORY * found.before_mib:
        faults.append(f"memory {found.before_mib:.0f} to {found.after_mib:.0f} MiB")
    return faults


def attack(cases: Sequence[Case], service: Service, seconds: float) -> list[Site]:
    """Run the attacks at once, on a thread that yields to the service and to its client."""
    sites = [Site(service.target, service, seconds) for _ in cases]

    async def run_all() -> None:
        async def bounded(case: Case, site: Site) -> None:
            try:
                async with asyncio.timeout(seconds + ATTACK_LIMIT_S):
                    await case.attack(site)
            except TimeoutError:
                site.outcomes["not over in time"] += 1
            except OSError as error:
                site.outcomes[type(error).__name__] += 1

        await asyncio.gather(*map(bounded, cases, sites))

    def yielding() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)

    with ThreadPoolExecutor(1, initializer=yielding) as pool:
        pool.submit(asyncio.run, run_all()).result()
    return sites


@contextmanager
def sampled(service: Service) -> Iterator[list[float]]:
    """Within it, the list grows by the service's MiB twice a second."""
    samples, over = [service.memory_mib()], threading.Event()

    def sample() -> None:
        while not over.wait(_SAMPLE_S):
            samples.append(service.memory_mib())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def memory_after(service: Service, before: float) -> float:
    """Memory once it has returned to what it was, or the last of some seconds."""
    until = time.monotonic() + MEMORY_RETURNS_S
    while (now := service.memory_mib()) > MAX_MEMORY * before and time.monotonic() < until:
        time.sleep(_SAMPLE_S)
    return now


def recovers(service: Service) -> bool:
    """Whether the service answers quickly again within RECOVERS_S."""
    until, quick = time.monotonic() + RECOVERS_S, 0
    data = request("/samples/7.png", key=service.target.key)
    while service.alive and time.monotonic() < until and quick < 4:
        began = time.monotonic()
        answer = asyncio.run(exchange(service.target, data, source="127.0.0.1", patience_s=5))
        quick = quick + 1 if answer.outcome == 200 and time.monotonic() - began < 0.5 else 0
    return quick == 4
