"""What an attack is, and all of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

from tests.attack.service import Door, Service
from tests.attack.wire import ATTACKER, Answer, Outcome, Target, exchange

HONEST = frozenset({503, 504})
"""Of 5xx, those that say what is so: come back later, and it took too long."""


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
    door: Door
    allowed: frozenset[Outcome] | None
    """Nothing else; None: anything but a 5xx that is not HONEST."""
    required: frozenset[Outcome]
    """Each at least once."""
    short: bool
    """Whether it is cheap enough for `make test`."""
    patient: bool
    """Whether it waits for the service's timers: all such are run at once."""
    fatal: bool
    """Whether it ends the service: no other client asks meanwhile."""

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return self.attack.__name__.replace("_", "-")

    def judge(self, outcomes: Counter[Outcome]) -> list[str]:
        """What is wrong with the answers."""
        dishonest = {one for one in outcomes if isinstance(one, int) and one >= 500} - HONEST
        wrong = dishonest if self.allowed is None else set(outcomes) - self.allowed
        faults = [f"answered {one}" for one in sorted(wrong, key=str)]
        return faults + [f"never {one}" for one in self.required - set(outcomes)]


CASES: list[Case] = []


def attack(
    title: str,
    *,
    door: Door = "open",
    allowed: Sequence[Outcome] | None = None,
    required: Sequence[Outcome] = (),
    short: bool = False,
    patient: bool = False,
    fatal: bool = False,
) -> Callable[[Attack], Attack]:
    """Enter an attack in the list of all."""

    def enter(function: Attack) -> Attack:
        accepted = None if allowed is None else frozenset(allowed)
        wanted = frozenset(required)
        CASES.append(Case(title, function, door, accepted, wanted, short, patient, fatal))
        return function

    return enter


def addresses(count: int) -> list[str]:
    """Different addresses of the loopback device, as a botnet has them."""
    return list(islice((f"127.0.1.{number}" for number in range(1, 255)), count))


@attack("no attack", short=True)
async def nothing(site: Site) -> None:
    """What the others are without one."""
    await asyncio.sleep(site.seconds)
