"""What the shared engine costs: rows a second of a graph that does nothing, by way of its socket.

python -m benchmarks.engine --rounds 5
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

from service.inference.batcher import Batcher, Runner
from service.inference.client import EngineClient, Host
from service.inference.engine import Backend, Loaded, Row
from service.inference.job import Job

IMAGE = np.zeros((1, 28, 28), np.float32)
RESULT = (np.zeros(10, np.float32), np.zeros((10, 16), np.float32))
KEY = ("nothing", "encode")


def do_nothing(rows: list[Row]) -> list[Row]:
    """The answer of a network of ten classes, at once."""
    return [RESULT] * len(rows)


def open_batcher() -> Batcher:
    """On a thread, as on CUDA."""
    return Batcher({KEY: Runner(do_nothing, 32)})


async def serve(path: Path) -> None:
    """Be the engine until the other end of standard input is gone."""
    await Host(open_batcher(), Loaded({}, "none")).serve(path)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def ask(backend: Backend, callers: int, seconds: float) -> float:
    """Rows a second that some callers get, each one after the other."""
    end, rows = time.perf_counter() + seconds, 0

    async def call() -> None:
        nonlocal rows
        while time.perf_counter() < end:
            await backend.submit(KEY, [(IMAGE,)], Job(time.monotonic()))
            rows += 1

    await asyncio.gather(*(call() for _ in range(callers)))
    return rows / seconds


async def ask_remote(path: Path, callers: int, seconds: float) -> float:
    """The same by way of the engine's socket."""
    remote = await EngineClient().connect(path)
    rate = await ask(remote, callers, seconds)
    remote.close()
    return rate


async def ask_local(callers: int, seconds: float) -> float:
    """The same in one process."""
    batcher = open_batcher()
    rate = await ask(batcher, callers, seconds)
    batcher.close()
    return rate


def start(*arguments: str) -> subprocess.Popen[str]:
    """This module in another process."""
    command = [sys.executable, "-m", "benchmarks.engine", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask_from(workers: int, path: Path, callers: int, seconds: float) -> float:
    """Rows a second of several processes together."""
    asked = [start("--ask", str(path), str(callers), str(seconds)) for _ in range(workers)]
    return sum(json.loads(one.communicate()[0]) for one in asked)


def main(
    *,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    seconds: Annotated[float, typer.Option(min=0.1)] = 2.0,
) -> None:
    """Print medians, least and largest of the rounds; the rows of a round take turns."""
    rates: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "engine"
        engine = start("--serve", str(path))
        assert engine.stdout
        engine.stdout.readline()
        for _ in range(rounds):
            for callers in (1, 64):
                measured: dict[str, Any] = {
                    "in one process": asyncio.run(ask_local(callers, seconds)),
                    "1 worker": ask_from(1, path, callers, seconds),
                    "2 workers": ask_from(2, path, callers, seconds),
                }
                for name, rate in measured.items():
                    rates.setdefault(f"{name}, {callers} callers each", []).append(rate)
        engine.communicate()
    for name, found in rates.items():
        print(f"{name}: {median(found):,.0f} rows/s ({min(found):,.0f} to {max(found):,.0f})")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--serve", path]:
            asyncio.run(serve(Path(path)))
        case ["--ask", path, callers, seconds]:
            print(asyncio.run(ask_remote(Path(path), int(callers), float(seconds))))
        case _:
            typer.run(main)
