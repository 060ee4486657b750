"""A quiet client next to two clients that send 256 images a request: its latency.

The three loads take turns: nothing else, interactive requests, bulk requests.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles
from typing import Annotated

import httpx
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.again import serving
from benchmarks.load.servers import SAMPLES

LOADS = {"nothing": None, "interactive": "interactive", "bulk": "bulk"}
"""The priority of the two clients with many images."""
CLIENTS, IMAGES = 2, 256
_PAUSE_S = 0.02

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def compare(
    model: Annotated[str, typer.Option(help="A bundle that ships.")] = "mnist",
    seconds: Annotated[float, typer.Option(min=1, help="Of each turn.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each load.")] = 3,
) -> None:
    """Print the latency of the quiet client, and the images a second of the two others."""
    latencies: dict[str, list[float]] = {name: [] for name in LOADS}
    images: dict[str, int] = dict.fromkeys(LOADS, 0)
    with serving(model, encoding_cache_bytes="0") as client:
        for _ in range(rounds):
            for name, priority in LOADS.items():
                found, sent = turn(client, priority, seconds)
                latencies[name] += found
                images[name] += sent
    title = f"{model}, {rounds} x {seconds:g} s; the quiet client pauses for {_PAUSE_S:g} s"
    table = Table("two clients of 256 images", "p50, ms", "p99, ms", "their images/s", title=title)
    for name, found in latencies.items():
        p99 = quantiles(found, n=100)[-1]
        rate = images[name] / (rounds * seconds)
        table.add_row(name, f"{1000 * median(found):.1f}", f"{1000 * p99:.1f}", f"{rate:,.0f}")
    Console().print(table)


def turn(client: httpx.Client, priority: str | None, seconds: float) -> tuple[list[float], int]:
    """The latencies of the quiet client, and the images of the two others that were answered."""
    ended, sent = threading.Event(), 0
    files = [("file", SAMPLES[number % len(SAMPLES)]) for number in range(IMAGES)]

    def load() -> int:
        answered = 0
        headers = {"X-Priority": priority or "interactive"}
        with httpx.Client(base_url=client.base_url, timeout=60) as own:
            while not ended.is_set():
                answer = own.post("/classify", files=files, headers=headers)
                answered += IMAGES * answer.is_success
        return answered

    found: list[float] = []
    with ThreadPoolExecutor(CLIENTS) as pool:
        loads = [pool.submit(load) for _ in range(CLIENTS if priority else 0)]
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            assert client.post("/classify", files={"file": SAMPLES[7]}).is_success
            found.append(time.perf_counter() - began)
            time.sleep(_PAUSE_S)
        ended.set()
        sent = sum(one.result() for one in loads)
    return found, sent


if __name__ == "__main__":
    app()
