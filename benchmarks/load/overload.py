"""Ten times the clients that saturate the service, for a minute; patient ones, and hasty ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from benchmarks.load.client import generate
from benchmarks.load.servers import Running, resident_mib

NEAR = 0.95
"""Of the best rate: so much counts as saturated."""
MAX_CONNECTIONS = 128
SAMPLE_S = 1.0
BATCH_ROWS, QUEUE_ROWS = 32, 1024
"""The service's defaults."""


def find_saturation(server: Running, *, seconds: float) -> tuple[int, float]:
    """The fewest connections, by doubling, that come near the best rate; and the best rate."""
    rates: dict[int, float] = {}
    connections = 1
    while connections <= MAX_CONNECTIONS:
        load = server.load(connections, seconds=seconds, warm_up_s=1)
        rates[connections] = generate(load).rate
        connections *= 2
    best = max(rates.values())
    return min(count for count, rate in rates.items() if rate >= NEAR * best), best


def overload(
    server: Running,
    connections: int,
    saturated_rate: float,
    *,
    queue_rows: int = QUEUE_ROWS,
    seconds: float,
) -> dict[str, Any]:
    """Load the service with that many patient clients; the figures, and which aims they meet."""
    with sampled_memory(server.pid) as samples:
        outcome = generate(server.load(connections, seconds=seconds, warm_up_s=2))
    memory = [samples[len(samples) // 4], samples[-1]]
    rows_before = min(queue_rows, connections) + BATCH_ROWS
    bound_ms = 1000 * rows_before / outcome.rate if outcome.rate else 0.0
    return {
        "connections": connections,
        "queue_rows": queue_rows,
        "saturated_rate": saturated_rate,
        **asdict(outcome),
        "bound_ms": bound_ms,
        "memory_mib": memory,
        "memory_peak_mib": max(samples),
        "aims": {
            "only 200 and 429": outcome.statuses.keys() <= {"200", "429"}
            and not outcome.failures
            and not outcome.wrong,
            "p99 of accepted within (queue + one batch) / rate": outcome.p99_ms <= bound_ms,
            "throughput within 10 % of saturation": outcome.rate >= 0.9 * saturated_rate,
            "memory grows by less than 5 % after the first quarter": memory[1] < 1.05 * memory[0],
        },
    }


def hurry(
    server: Running, connections: int, saturated_rate: float, *, limit_s: float, seconds: float
) -> dict[str, Any]:
    """Load the service with clients that each allow so much time; what is answered within it."""
    header = f"\r\nX-Request-Timeout: {limit_s}\r\n".encode()
    hasty = replace(server, requests=[one.replace(b"\r\n", header, 1) for one in server.requests])
    outcome = generate(hasty.load(connections, seconds=seconds, warm_up_s=2))
    return {
        "connections": connections,
        "limit_s": limit_s,
        "saturated_rate": saturated_rate,
        **asdict(outcome),
        "aims": {
            "only 200, 429 and 504": outcome.statuses.keys() <= {"200", "429", "504"}
            and not outcome.failures
            and not outcome.wrong,
            "answers in time within 10 % of saturation": outcome.rate >= 0.9 * saturated_rate,
        },
    }


@contextmanager
def sampled_memory(pid: int) -> Iterator[list[float]]:
    """Within it, the list grows by the process's resident MiB every second."""
    samples, over = [resident_mib(pid)], threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            samples.append(resident_mib(pid))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
