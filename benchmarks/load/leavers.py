"""A thousand clients that leave before their answer, while others go on."""

from __future__ import annotations

import asyncio
import http.client
import random
import re
import time
from typing import Any

from benchmarks.load.client import Outcome, generate
from benchmarks.load.servers import Running

OTHERS = 256
"""Connections that stay: so many that who comes waits for longer than leavers stay."""
AT_ONCE = 50
STAY_S = 0.05
"""Leavers stay for this long at most."""
COMPUTED_SHARE = 0.05
"""Of the leavers' rows, some may be in a batch when their client leaves."""
_ROWS = re.compile(r"^capsnet_batch_rows_sum\{[^}]*\} (\S+)$", re.MULTILINE)


def measure_leavers(server: Running, *, leavers: int = 1000) -> dict[str, Any]:
    """Send and leave, and see what became of the others and of the leavers' rows."""
    before = rows_computed(server)
    outcome, seconds = asyncio.run(_run(server, leavers))
    time.sleep(1)
    answered = outcome.statuses.get("200", 0)
    computed = rows_computed(server) - before - answered
    return {
        "leavers": leavers,
        "seconds": seconds,
        "others_answered": answered,
        "others_statuses": outcome.statuses,
        "others_wrong": outcome.wrong,
        "others_failures": outcome.failures,
        "others_p99_ms": outcome.p99_ms,
        "leavers_rows_computed": computed,
        "aims": {
            "the others are unharmed": outcome.statuses.keys() == {"200"}
            and not outcome.wrong
            and not outcome.failures,
            "rows of leavers are not computed": computed <= COMPUTED_SHARE * leavers,
        },
    }


def rows_computed(server: Running) -> int:
    """Rows of all inferences so far, from the service's metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return round(sum(float(value) for value in _ROWS.findall(text)))


async def _run(server: Running, leavers: int) -> tuple[Outcome, float]:
    """The others, and in the middle of their time the leavers."""
    others = asyncio.create_task(
        asyncio.to_thread(generate, server.load(OTHERS, seconds=8, warm_up_s=2))
    )
    await asyncio.sleep(3)
    places = asyncio.Semaphore(AT_ONCE)
    began = time.perf_counter()
    await asyncio.gather(*(_leave(server, number, places) for number in range(leavers)))
    seconds = time.perf_counter() - began
    return await others, seconds


async def _leave(server: Running, number: int, places: asyncio.Semaphore) -> None:
    async with places:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(server.requests[number % len(server.requests)])
        await writer.drain()
        await asyncio.sleep(random.uniform(0, STAY_S))  # noqa: S311  no secret
        writer.transport.abort()
