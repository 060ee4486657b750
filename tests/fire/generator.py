"""The load generator, in a process of its own: a `Load` on stdin, a `Seen` on stdout.

Either each of some connections sends its next request when the last was answered, or requests are
sent when they are due, however long the answers take; a request's time then runs from when it was
due. Every answer's label is checked.
"""

from __future__ import annotations

import asyncio
import io
import math
import pickle
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import aiohttp
import uvloop
from PIL import Image

from service.pictures import SAMPLES
from tests.attack.wire import CLOSED, REFUSED, SILENT, Target

MAX_RETRY_S = 10.0
"""A longer `Retry-After` is not waited for."""
WRONG = "wrong label"
ROOT = Path(__file__).resolve().parents[2]


class Asked(NamedTuple):
    """A request, and the label that its answer must have."""

    path: str
    content: bytes
    kind: str = "image/png"
    label: int | None = None


@dataclass(frozen=True, kw_only=True)
class Load:
    """What to send, and how much of it."""

    target: Target
    requests: list[Asked]
    """In turn."""
    connections: int = 0
    """So many wait for their answers; 0 where requests come at a rate."""
    rate: float = 0.0
    """Requests a second."""
    seconds: float = math.inf
    """Infinite: until the input is closed."""
    source: str = "127.0.0.1"
    """The address of the client."""
    patience_s: float = 40.0
    """An answer that takes longer counts as none."""
    retries: bool = False
    """Whether a refused request is sent once more after `Retry-After`, and its time begins anew."""
    half_anew: bool = False
    """Whether every second request has a connection of its own."""


@dataclass
class Seen:
    """What came of it."""

    sent: int = 0
    right: int = 0
    """Answers with status 200 and the right label."""
    rate: float = 0.0
    """Of those, a second."""
    p50_ms: float = math.nan
    p99_ms: float = math.nan
    """Of them; NaN where there are none."""
    refused: int = 0
    """Requests that were sent a second time."""
    statuses: Counter[int] = field(default_factory=Counter)
    """All answers."""
    missed: Counter[str] = field(default_factory=Counter)
    """Requests without a right answer in the end, by what came instead."""


class Generator:
    """All requests of one load."""

    def __init__(
        self, load: Load, kept: aiohttp.ClientSession, anew: aiohttp.ClientSession
    ) -> None:
        self._load, self._kept, self._anew = load, kept, anew
        self._url = f"http://127.0.0.1:{load.target.port}"
        self._times: list[float] = []
        self.seen = Seen()

    async def run(self, over: asyncio.Event) -> None:
        """Send requests for some seconds or until it is over, and wait for their answers."""
        began = time.perf_counter()
        if self._load.connections:
            numbers = range(self._load.connections)
            await asyncio.gather(*(self._repeat(number, began) for number in numbers))
        else:
            await self._send_at_a_rate(began, over)
        self.seen.rate = self.seen.right / (time.perf_counter() - began)
        if times := sorted(self._times):
            ranks = (math.ceil(share * len(times)) - 1 for share in (0.5, 0.99))
            self.seen.p50_ms, self.seen.p99_ms = (1000 * times[rank] for rank in ranks)

    async def _repeat(self, number: int, began: float) -> None:
        while time.perf_counter() - began < self._load.seconds:
            await self._ask(number, time.perf_counter())
            number += 1

    async def _send_at_a_rate(self, began: float, over: asyncio.Event) -> None:
        asking, number = set[asyncio.Task[None]](), 0
        while self._load.rate and (after := number / self._load.rate) < self._load.seconds:
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), began + after - time.perf_counter())
            if over.is_set():
                break
            asking.add(asyncio.create_task(self._ask(number, began + after)))
            number += 1
        await asyncio.gather(*asking)

    async def _ask(self, number: int, due: float) -> None:
        """Send a request, and count what comes of it."""
        asked = self._load.requests[number % len(self._load.requests)]
        session = self._anew if self._load.half_anew and number % 2 else self._kept
        self.seen.sent += 1
        outcome, retry_after_s = await self._exchange(session, asked)
        if retry_after_s and self._load.connections:
            await asyncio.sleep(retry_after_s)
        elif retry_after_s and self._load.retries:
            self.seen.refused += 1
            await asyncio.sleep(retry_after_s)
            due = time.perf_counter()
            outcome, _ = await self._exchange(session, asked)
        if outcome == "right":
            self.seen.right += 1
            self._times.append(time.perf_counter() - due)
        else:
            self.seen.missed[outcome] += 1

    async def _exchange(self, session: aiohttp.ClientSession, asked: Asked) -> tuple[str, float]:
        """What came of it, and the seconds after which a refused request may come again."""
        headers = {"Content-Type": asked.kind, "X-API-Key": self._load.target.key}
        try:
            async with session.post(
                self._url + asked.path, data=asked.content, headers=headers
            ) as answer:
                self.seen.statuses[answer.status] += 1
                return judge(answer, await answer.read(), asked)
        except TimeoutError:
            return SILENT, 0
        except aiohttp.ClientConnectorError:
            return REFUSED, 0
        except aiohttp.ClientError:
            if session is self._kept and not self._load.connections:
                return await self._exchange(self._anew, asked)  # a kept one may end at any time
            return CLOSED, 0


def judge(answer: aiohttp.ClientResponse, body: bytes, asked: Asked) -> tuple[str, float]:
    """What an answer is, and the seconds after which a refused request may come again."""
    if answer.status != 200:
        wait_s = float(answer.headers.get("Retry-After", 0))
        again = answer.status in (429, 503) and wait_s <= MAX_RETRY_S
        return str(answer.status), wait_s if again else 0
    label = re.search(rb'"label": ?(\d+)', body)
    right = asked.label is None or (label is not None and int(label[1]) == asked.label)
    return "right" if right else WRONG, 0


def pictures() -> list[Asked]:
    """Each sample, to be classified: twice as it is, and as a photograph of 280 x 280."""
    found = []
    for label in range(10):
        content = (SAMPLES / f"{label}.png").read_bytes()
        photograph, large = io.BytesIO(), Image.open(io.BytesIO(content)).resize((280, 280))
        large.save(photograph, "JPEG")
        found += [Asked("/classify", content, label=label)] * 2
        found.append(Asked("/classify", photograph.getvalue(), "image/jpeg", label))
    return found


def quiet_client(target: Target) -> subprocess.Popen[bytes]:
    """A well-behaved client: ten requests a second until `finish`."""
    return start(
        Load(
            target=target,
            requests=pictures(),
            rate=10,
            patience_s=10,
            retries=True,
            half_anew=True,
        )
    )


def start(load: Load) -> subprocess.Popen[bytes]:
    """Begin a load in a process of its own."""
    command = [sys.executable, "-m", "tests.fire.generator"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    pickle.dump(load, process.stdin)
    process.stdin.flush()
    process.stdout.readline()  # it has begun
    return process


def finish(process: subprocess.Popen[bytes]) -> Seen:
    """Wait for a load that was begun. One without a number of seconds ends now."""
    output, _ = process.communicate(timeout=300)
    seen = pickle.loads(output)  # noqa: S301  of our own process
    assert isinstance(seen, Seen)
    return seen


async def main() -> Seen:
    """Read a load, run it, write the outcome."""
    load: Load = pickle.load(sys.stdin.buffer)  # noqa: S301  of our own process
    over = asyncio.Event()
    print("begun", flush=True)
    if load.seconds == math.inf:
        reading = asyncio.ensure_future(asyncio.to_thread(sys.stdin.buffer.read))
        reading.add_done_callback(lambda _: over.set())
    async with AsyncExitStack() as stack:
        generator = Generator(
            load, *[await stack.enter_async_context(one) for one in sessions(load)]
        )
        await generator.run(over)
    return generator.seen


def sessions(load: Load) -> Iterator[aiohttp.ClientSession]:
    """One that keeps connections, and one that does not."""
    for anew in (False, True):
        connector = aiohttp.TCPConnector(limit=0, local_addr=(load.source, 0), force_close=anew)
        timeout = aiohttp.ClientTimeout(total=load.patience_s)
        yield aiohttp.ClientSession(connector=connector, timeout=timeout)


if __name__ == "__main__":
    from tests.fire import generator  # so that the classes have the names that tests know

    sys.stdout.buffer.write(pickle.dumps(uvloop.run(generator.main())))
