"""How soon the service is ready and how much memory it keeps. Linux only: it reads /proc.

The first start also reads the disk; the median of several is that of warm caches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import httpx
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

import service
from benchmarks.load.servers import find_port, resident_mib

SAMPLES = sorted((Path(service.__file__).parent / "samples").glob("*.png"))
ROOT = Path(service.__file__).parents[1]
POLL_INTERVAL = 0.01
"""Seconds."""
DEADLINE = 60.0
"""Seconds after which a start has failed."""

app = typer.Typer(pretty_exceptions_enable=False)


class Start(NamedTuple):
    """What was measured of one start."""

    seconds: float
    """From starting the process to the first 200 of /readyz."""
    ready_mib: float
    """The resident memory of the supervisor and its workers."""
    used_mib: float
    """The same after the requests."""


@app.command()
def report(
    *,
    bundles: Annotated[Path, typer.Option(help="Folder with a folder per bundle.")] = Path(
        "model/bundles"
    ),
    model: Annotated[str, typer.Option(help="The one bundle to load.")] = "mnist",
    starts: Annotated[int, typer.Option(min=1)] = 7,
    requests: Annotated[int, typer.Option(min=1, help="To /classify, after each start.")] = 50,
) -> None:
    """Start the service several times and print medians."""
    measured = [
        measure(bundles.resolve(), model, requests=requests)
        for _ in track(range(starts), description="starting", transient=True)
    ]
    table = Table("", "median", "min - max", title=f"service with {model}, {starts} starts")
    table.add_row("ready after, s", *describe([one.seconds for one in measured], digits=2))
    table.add_row("memory when ready, MiB", *describe([one.ready_mib for one in measured]))
    table.add_row(f"after {requests} requests, MiB", *describe([one.used_mib for one in measured]))
    Console().print(table)


def measure(bundles: Path, model: str, *, requests: int) -> Start:
    """Start the service once, use it and stop it."""
    port = find_port()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE) as client:
        begin = time.perf_counter()
        with run_service(environment(bundles, model, port)) as process:
            wait_until_ready(client, process)
            seconds = time.perf_counter() - begin
            ready_mib = resident_mib(process.pid)
            classify(client, requests)
            return Start(seconds, ready_mib, resident_mib(process.pid))


def environment(bundles: Path, model: str, port: int) -> dict[str, str]:
    """This process's environment, with the service's settings replaced by these."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CAPSNET_") and name not in {"HOST", "PORT"}
    }
    return {
        **inherited,
        "CAPSNET_BUNDLES": str(bundles),
        "CAPSNET_MODELS": json.dumps([model]),
        "CAPSNET_DEFAULT_MODEL": model,
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_PORT": str(port),
    }


@contextmanager
def run_service(variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The service in a process of its own, stopped with SIGTERM at the end."""
    process = subprocess.Popen([sys.executable, "-m", "service"], env=variables, cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    """Ask /readyz every 10 ms until it answers 200."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit("the service ended at its start")
        try:
            if client.get("/readyz").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        time.sleep(POLL_INTERVAL)
    sys.exit(f"the service was not ready within {DEADLINE:.0f} s")


def classify(client: httpx.Client, requests: int) -> None:
    """Send the sample pictures one after the other, over and over."""
    for sample in islice(cycle(SAMPLES), requests):
        answer = client.post(
            "/classify", content=sample.read_bytes(), headers={"content-type": "image/png"}
        )
        answer.raise_for_status()


def describe(values: list[float], *, digits: int = 0) -> tuple[str, str]:
    """Median and range as text."""
    return (
        f"{median(values):.{digits}f}",
        f"{min(values):.{digits}f} - {max(values):.{digits}f}",
    )


if __name__ == "__main__":
    app()
