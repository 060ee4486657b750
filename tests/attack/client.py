"""The well-behaved client, in a process of its own: `python -m tests.attack.client PORT [KEY]`.

It asks ten times a second until its input closes, then writes what it saw as JSON. Requests are
sent when they are due, whether earlier ones were answered or not: who waits too is measured. Every
second one has a connection of its own, the others share kept ones; every third is a photograph,
which is decoded elsewhere than a drawing of 28 x 28 pixels. Every answer's label is checked.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from PIL import Image

from service.pictures import SAMPLES
from tests.attack.wire import CLOSED, Answer, Connection, Outcome, Target, request

PERIOD_S = 0.1
PATIENCE_S = 10.0
MAX_RETRY_S = 10.0
"""A longer `Retry-After` is not waited for."""


@dataclass
class Report:
    """What the client saw."""

    answered: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    refused: int = 0
    """Of all, those that were answered only after 429 or 503 and the `Retry-After` of that."""
    failures: dict[str, int] = field(default_factory=dict)
    """No answer with the right label, by what came instead."""


def pictures() -> list[tuple[int, bytes, str]]:
    """Label, file and media type of each sample, as it is and as a photograph of 280 x 280."""
    found = []
    for label in range(10):
        content = (SAMPLES / f"{label}.png").read_bytes()
        photograph, large = io.BytesIO(), Image.open(io.BytesIO(content)).resize((280, 280))
        large.save(photograph, "JPEG")
        drawing = (label, content, "image/png")
        found += [drawing, drawing, (label, photograph.getvalue(), "image/jpeg")]
    return found


class Client:
    """Asks, checks and counts."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._seconds: list[float] = []
        self._idle: list[Connection] = []
        self._refused = 0
        self._failures: Counter[str] = Counter()
        self._requests = [
            (label, request("/classify", content, kind=kind, key=target.key))
            for label, content, kind in pictures()
        ]

    async def run(self, over: Awaitable[object]) -> Report:
        """Ask until something is over, and wait for what is under way."""
        ending, asked = asyncio.ensure_future(over), set()
        start, number = time.monotonic(), 0
        while not ending.done():
            asked.add(asyncio.ensure_future(self._ask(number)))
            number += 1
            due_s = start + number * PERIOD_S - time.monotonic()
            await asyncio.wait([ending], timeout=max(0, due_s))
        await asyncio.gather(*asked)
        for connection in self._idle:
            connection.close()
        return self._report()

    def _report(self) -> Report:
        seconds = sorted(self._seconds) or [math.nan]
        middle, late = (1000 * seconds[math.ceil(q * len(seconds)) - 1] for q in (0.5, 0.99))
        return Report(len(self._seconds), middle, late, self._refused, dict(self._failures))

    async def _ask(self, number: int) -> None:
        """One request, and a second time if it is refused with `Retry-After`."""
        label, data = self._requests[number % len(self._requests)]
        sent = time.monotonic()
        answer = await self._exchange(data, kept=number % 2 == 0)
        if (retry_s := _retry_after_s(answer)) is not None:
            self._refused += 1
            await asyncio.sleep(retry_s)
            sent = time.monotonic()
            answer = await self._exchange(data, kept=number % 2 == 0)
        if answer.outcome != 200:
            self._failures[str(answer.outcome)] += 1
        elif json.loads(answer.body)["predictions"][0]["label"] != label:
            self._failures["wrong label"] += 1
        else:
            self._seconds.append(time.monotonic() - sent)

    async def _exchange(self, data: bytes, *, kept: bool) -> Answer:
        try:
            async with asyncio.timeout(PATIENCE_S):
                if kept and self._idle:
                    connection = self._idle.pop()
                    answer = await connection.exchange(data)
                    if answer.outcome != CLOSED:  # idle connections may be closed at any time
                        return self._leave(connection, answer, kept=True)
                connection = await Connection.open(self._target, source="127.0.0.1")
                return self._leave(connection, await connection.exchange(data), kept=kept)
        except (OSError, TimeoutError) as error:
            return Answer("timeout" if isinstance(error, TimeoutError) else "refused")

    def _leave(self, connection: Connection, answer: Answer, *, kept: bool) -> Answer:
        over = b"connection: close" in answer.head.lower()
        if kept and isinstance(answer.outcome, int) and not over:
            self._idle.append(connection)
        else:
            connection.close()
        return answer


def _retry_after_s(answer: Answer) -> float | None:
    """When to ask again, if the answer says so and it is soon."""
    outcome: Outcome = answer.outcome
    for line in answer.head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if outcome in (429, 503) and name == b"retry-after" and float(value) <= MAX_RETRY_S:
            return float(value)
    return None


async def main() -> None:
    """Ask until the input closes."""
    target = Target(int(sys.argv[1]), *sys.argv[2:])
    over = asyncio.to_thread(sys.stdin.read)
    print("begun", flush=True)
    with suppress(KeyboardInterrupt):
        json.dump(asdict(await Client(target).run(over)), sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
