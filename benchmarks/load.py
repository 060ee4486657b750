"""This service and a plain FastAPI service under load, in turn: answers per second by wrk.

    python -m benchmarks.load --model mnist --rounds 3 --seconds 4

Needs wrk. Both services run the same graphs on the CPU and answer the ten sample pictures. Each
label is checked once before the load.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from statistics import median
from typing import Annotated

import httpx
import typer
from rich.console import Console
from rich.table import Table

import model as models
from model.runtime.cpu import cpu_quota
from service.pictures import SAMPLES

PORT = 18300
START_S = 120.0
CONNECTIONS = (1, 32)
OURS = "this service"
ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "load.lua"
LOG = ROOT / "runs" / "load.log"
PICTURES = [SAMPLES / f"{label}.png" for label in range(10)]

Command = tuple[list[str], Mapping[str, str]]
"""A command line and its environment variables."""
app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def compare(
    *,
    model: Annotated[str, typer.Option(help="A bundle that ships.")] = "mnist",
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each service.")] = 3,
    seconds: Annotated[int, typer.Option(min=1, help="Of one measurement.")] = 4,
    busy: Annotated[bool, typer.Option("--busy", help="Keep one core busy.")] = False,
) -> None:
    """Let the services take turns and print the median rates, with their ranges."""
    if not shutil.which("wrk"):
        raise typer.BadParameter("wrk is not installed")
    services = commands(model)
    rates: dict[tuple[str, int], list[float]] = {
        (name, connections): [] for name in services for connections in CONNECTIONS
    }
    with busy_core() if busy else nullcontext():
        for number in range(rounds):
            for name in list(services) if number % 2 else reversed(services):
                with running(services[name], f"/classify?model={model}") as url:
                    for connections in CONNECTIONS:
                        rates[name, connections].append(load(url, connections, seconds))
    table = Table("answers/s", *(f"{n} connections" for n in CONNECTIONS), title=model)
    for name in services:
        table.add_row(name, *(describe(rates[name, n]) for n in CONNECTIONS))
    Console(width=100).print(table)


def commands(name: str) -> dict[str, Command]:
    """This service with its defaults, and two settings of the plain one."""
    cores = str(cpu_quota())
    uvicorn = [sys.executable, "-m", "uvicorn", "--factory", "benchmarks.plain_service:create_app"]
    quiet = ["--port", str(PORT), "--no-access-log", "--log-level", "warning"]
    bundle = {"BUNDLE": str(models.SHIPPED / name)}
    ours = {
        "CAPSNET_PORT": str(PORT),
        "CAPSNET_MODELS": json.dumps([name]),
        "CAPSNET_DEFAULT_MODEL": name,
        "CAPSNET_DEVICE": "cpu",
    }
    return {
        OURS: ([sys.executable, "-m", "service"], ours),
        f"FastAPI, {cores} threads": ([*uvicorn, *quiet], {**bundle, "THREADS": cores}),
        f"FastAPI, {cores} workers": (
            [*uvicorn, *quiet, "--workers", cores],
            {**bundle, "THREADS": "1"},
        ),
    }


@contextmanager
def running(command: Command, path: str) -> Iterator[str]:
    """Start a service, wait until it labels all samples correctly, and stop it at the end."""
    arguments, variables = command
    plain = {name: value for name, value in os.environ.items() if not name.startswith("CAPSNET_")}
    url = f"http://127.0.0.1:{PORT}{path}"
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("ab") as log:
        process = subprocess.Popen(
            arguments, cwd=ROOT, env={**plain, **variables}, stdout=log, stderr=log
        )
    try:
        _wait_until_right(process, url)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def load(url: str, connections: int, seconds: int) -> float:
    """Answers per second after a second of warm-up; anything but 200 fails."""
    wrk = ["wrk", "--threads=1", f"--connections={connections}", f"--script={SCRIPT}"]
    for duration in (1, seconds):
        result = subprocess.run(
            [*wrk, f"--duration={duration}s", url, "--", *map(str, PICTURES)],
            capture_output=True,
            text=True,
            check=True,
        )
    found = json.loads(result.stdout.splitlines()[-1])
    assert not found["faults"], result.stdout
    return float(found["rate"])


def describe(rates: list[float]) -> str:
    """The median and the range."""
    return f"{median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep a core busy with another program."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _wait_until_right(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the service ended at its start; see {LOG}")
        with suppress(httpx.TransportError):
            if all(_label(url, picture) == picture.stem for picture in PICTURES):
                return
        time.sleep(0.1)
    raise SystemExit(f"no correct answers within {START_S:.0f} s; see {LOG}")


def _label(url: str, picture: Path) -> str | None:
    """The label of a picture, by a new connection."""
    headers = {"Content-Type": "image/png"}
    answer = httpx.post(url, content=picture.read_bytes(), headers=headers)
    found = re.search(r'"label": ?(\d+)', answer.text)
    return found and found[1]


if __name__ == "__main__":
    app()
