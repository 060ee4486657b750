"""Runs attacks on a service while a well-behaved client asks, and judges what came of it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import cycle
from typing import Any

from tests.attack.service import Door, Service
from tests.attack.wire import ATTACKER, Answer, Outcome, Target, exchange, request
from tests.fire.generator import Seen, finish, quiet_client

HONEST = frozenset({503, 504})
"""Of 5xx, those that say what is so: come back later, and it took too long."""
ATTACK_LIMIT_S = 45.0
"""Beyond its own seconds, what an attack may take before it is ended."""
MEMORY_RETURNS_S = 15.0
RECOVERS_S = 30.0
MAX_MEMORY = 1.2
"""Of what it was before."""
MAX_REFUSED = 0.1
"""Of all well-behaved requests, those that may be refused once."""
_NICENESS = 10


@dataclass
class Site:
    """What one attack is given: where, for how long, and a place for what came of it."""

    target: Target
    service: Service
    seconds: float
    """How long an attack that repeats itself goes on."""
    outcomes: Counter[Outcome] = field(default_factory=Counter)

    async def send(self, data: bytes, *, source: str = ATTACKER, patience_s: float = 40) -> Answer:
        """One exchange on a connection of its own; its outcome counts."""
        answer = await exchange(self.target, data, source=source, patience_s=patience_s)
        self.outcomes[answer.outcome] += 1
        return answer

    async def flood(self, requests: Sequence[bytes], *, connections: int = 4) -> None:
        """Have so many clients send the requests in turn until the deadline.

        A client that is refused waits a moment, as the attacker is to cost less than the service.
        """
        until = time.monotonic() + self.seconds

        async def repeat(first: int) -> None:
            for data in cycle([*requests[first:], *requests[:first]]):
                answer = await self.send(data)
                await asyncio.sleep(0.05 if answer.outcome == 200 else 0.2)
                if time.monotonic() > until:
                    return

        await asyncio.gather(*(repeat(number % len(requests)) for number in range(connections)))


Attack = Callable[[Site], Awaitable[None]]


@dataclass(frozen=True)
class Case:
    """One attack, and what the service may say to it."""

    title: str
    attack: Attack
    allowed: Collection[Outcome] | None = None
    """Nothing else; None: anything but a 5xx that is not HONEST."""
    required: Collection[Outcome] = ()
    """Each at least once."""
    door: Door = "open"
    short: bool = False
    """Whether it is cheap enough for `make test`."""
    alone: bool = False
    """Whether `make test` does not run it next to other attacks."""
    patient: bool = False
    """Whether it waits for the service's timers: all such are run at once."""

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return "-".join("".join(one if one.isalnum() else " " for one in self.title).split())

    def judge(self, outcomes: Counter[Outcome]) -> list[str]:
        """What is wrong with the answers."""
        dishonest = {one for one in outcomes if isinstance(one, int) and one >= 500} - HONEST
        wrong = dishonest if self.allowed is None else set(outcomes) - set(self.allowed)
        faults = [f"answered {one}" for one in sorted(wrong, key=str)]
        return faults + [f"never {one}" for one in set(self.required) - set(outcomes)]


@dataclass
class Result:
    """What came of one attack."""

    case: Case
    outcomes: Counter[Outcome]
    client: Seen
    before_mib: float
    after_mib: float
    faults: list[str]

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        outcomes = {str(outcome): count for outcome, count in self.outcomes.items()}
        found = {"title": self.case.title, "outcomes": outcomes, "client": asdict(self.client)}
        memory = {"before_mib": self.before_mib, "after_mib": self.after_mib}
        return {**found, **memory, "faults": self.faults}


def run(
    cases: Sequence[Case],
    service: Service,
    *,
    seconds: float,
    max_p99_ms: float = 1_000,
    memory: bool = True,
) -> list[Result]:
    """Run attacks at once, next to one client; each has a result.

    Args:
        cases: the attacks.
        service: that is attacked.
        seconds: of an attack that repeats itself.
        max_p99_ms: what the client is promised meanwhile.
        memory: whether memory is judged.
    """
    before, logged = service.memory_mib(), service.log.stat().st_size
    client = quiet_client(service.target)
    sites = attack(cases, service, seconds)
    time.sleep(1)
    seen = finish(client)
    after = memory_after(service, before) if memory else service.memory_mib()
    shared = judge(seen, max_p99_ms)
    shared += [f"{count} x {one}" for one, count in Counter(service.tracebacks(logged)).items()]
    if not service.alive:
        shared.append("the service ended")
    if memory and after > MAX_MEMORY * before:
        shared.append(f"memory {before:.0f} to {after:.0f} MiB")
    return [
        Result(case, site.outcomes, seen, before, after, case.judge(site.outcomes) + shared)
        for case, site in zip(cases, sites, strict=True)
    ]


def judge(seen: Seen, max_p99_ms: float) -> list[str]:
    """What is wrong with what the well-behaved client saw."""
    asked = seen.right + sum(seen.missed.values())
    faults = [f"{count} of {asked} others: {what}" for what, count in seen.missed.items()]
    if not seen.p99_ms < max_p99_ms:  # nan is none
        faults.append(f"p99 of others {seen.p99_ms:,.0f} ms")
    if seen.refused > MAX_REFUSED * asked:
        faults.append(f"{seen.refused} of {asked} others refused once")
    return faults


def attack(cases: Sequence[Case], service: Service, seconds: float) -> list[Site]:
    """Run the attacks at once, on a thread that yields to the service and to its client."""
    sites = [Site(service.target, service, seconds) for _ in cases]

    async def bounded(case: Case, site: Site) -> None:
        try:
            async with asyncio.timeout(seconds + ATTACK_LIMIT_S):
                await case.attack(site)
        except TimeoutError:
            site.outcomes["not over in time"] += 1
        except OSError as error:
            site.outcomes[type(error).__name__] += 1

    async def run_all() -> None:
        await asyncio.gather(*map(bounded, cases, sites))

    def yielding() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)

    with ThreadPoolExecutor(1, initializer=yielding) as pool:
        pool.submit(asyncio.run, run_all()).result()
    return sites


def memory_after(service: Service, before: float) -> float:
    """Memory once it has returned to what it was, or the last of some seconds."""
    until = time.monotonic() + MEMORY_RETURNS_S
    while (now := service.memory_mib()) > MAX_MEMORY * before and time.monotonic() < until:
        time.sleep(0.5)
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
