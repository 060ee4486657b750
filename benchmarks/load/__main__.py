"""`python -m benchmarks.load setup`, `run`, `plain` and `report`."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.load import environments
from benchmarks.load.catalogue import ours, plain_fastapi
from benchmarks.load.idle import PAUSES_S, measure_idle
from benchmarks.load.leavers import measure_leavers
from benchmarks.load.memory import measure_memory
from benchmarks.load.overload import find_saturation, hurry, overload
from benchmarks.load.report import report
from benchmarks.load.results import Results
from benchmarks.load.servers import ROOT, RUNS, busy_core, running
from benchmarks.load.tensors import measure_tensors
from benchmarks.load.turns import Best, Turns
from model import SHIPPED

BUNDLES = [ROOT / "model" / "bundles" / name for name in ("mnist", "mnist-compact")]
SMALL_QUEUE = 512
"""Rows; no queue is shorter than the largest request."""
HASTE = 0.6
"""How much time clients allow, as a share of what all of them would wait for."""


class Part(StrEnum):
    """What can be measured alone."""

    IDLE = "idle"
    LEAVERS = "leavers"
    MEMORY = "memory"
    OVERLOAD = "overload"
    SERVERS = "servers"
    TENSORS = "tensors"


app = typer.Typer(pretty_exceptions_enable=False)
console = Console(highlight=False, soft_wrap=True)


@app.command()
def setup(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Of {', '.join(environments.NAMES)}; default: all.")
    ] = None,
) -> None:
    """Make an environment for each baseline, from its pinned requirements."""
    for name in names or environments.NAMES:
        console.print(f"environment {name}")
        environments.set_up(name)


@app.command()
def run(
    *,
    minutes: Annotated[float, typer.Option(min=1, help="Start no round that ends later.")] = 28,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each server.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.5, help="Of one measurement.")] = 4,
    overload_seconds: Annotated[float, typer.Option(min=1, help="Of the overload.")] = 60,
    part: Annotated[list[Part] | None, typer.Option(help="Only this; may be repeated.")] = None,
    settings_of: Annotated[
        Path | None, typer.Option(help="An earlier run's results: try no settings again.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Results, as JSON.")] = None,
) -> None:
    """Measure everything and write the results, after each measurement, and a report."""
    until = time.monotonic() + 60 * minutes
    results = Results(output or RUNS / f"{time.strftime('%Y%m%d-%H%M%S')}.json")
    console.print(f"results: {results.path}")
    parts = part or list(Part)
    if Part.IDLE in parts:
        _idle(results)
    if Part.MEMORY in parts:
        for workers in ("1", "2", "3"):
            with running(ours(BUNDLES[0], {"CAPSNET_WORKERS": workers})) as server:
                results.add("memory", **measure_memory(server))
    if Part.LEAVERS in parts:
        with running(ours(BUNDLES[0])) as server:
            results.add("leavers", **measure_leavers(server))
    if Part.OVERLOAD in parts:
        _overload(results, search_seconds=min(seconds, 3), seconds=overload_seconds)
    if Part.TENSORS in parts:
        _check_environments("triton")
        measure_tensors(results, console, rounds=rounds, seconds=seconds)
    if Part.SERVERS in parts:
        _check_environments(*environments.NAMES)
        known = _best_settings(settings_of) if settings_of else None
        turns = Turns(BUNDLES, results, console, seconds=seconds, until=until)
        turns.run(rounds=rounds, known=known)
    _write_report(results)


@app.command()
def plain(
    *,
    minutes: Annotated[float, typer.Option(min=0.1, help="Start no round that ends later.")] = 6,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each server.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.5, help="Of one measurement.")] = 4,
    bundle: Annotated[list[str] | None, typer.Option(help="That ships; may be repeated.")] = None,
    busy: Annotated[
        bool, typer.Option("--busy", help="Another program keeps a core busy.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Results, as JSON.")] = None,
) -> None:
    """Compare with two plain FastAPI services, at 1 and 32 connections, in at most 6 minutes."""
    until = time.monotonic() + 60 * minutes
    _check_environments("fastapi")
    results = Results(output or RUNS / f"{time.strftime('%Y%m%d-%H%M%S')}-plain.json")
    results.values["machine"]["busy_cores"] = int(busy)
    bundles = [SHIPPED / name for name in bundle or ("mnist", "mnist-attention")]
    turns = Turns(
        bundles,
        results,
        console,
        others=plain_fastapi,
        variables=lambda name: {"CAPSNET_MODELS": f'["{name}"]', "CAPSNET_DEFAULT_MODEL": name},
        alone=False,
        seconds=seconds,
        until=until,
    )
    with busy_core() if busy else nullcontext():
        turns.run(rounds=rounds)
    _write_report(results)


@app.command("report")
def write_report(results: Annotated[Path, typer.Argument(help="JSON of a run.")]) -> None:
    """Print the report of a run, finished or not."""
    console.print(report(json.loads(results.read_text())))


def _write_report(results: Results) -> None:
    written = results.path.with_suffix(".md")
    written.write_text(report(results.values))
    console.print(written.read_text())


def _check_environments(*names: str) -> None:
    for name in names:
        if not environments.is_set_up(name):
            raise SystemExit(
                f"environment {name} is missing: python -m benchmarks.load setup {name}"
            )


def _idle(results: Results) -> None:
    for bundle in BUNDLES:
        for pause_s in PAUSES_S:
            with running(ours(bundle)) as server:
                path = f"/classify?model={bundle.name}"
                measured = measure_idle(server, path, pause_s=pause_s)
            results.add("idle", bundle=bundle.name, **measured)
            console.print(f"{bundle.name} idle: {measured['service_p50_ms']:.2f} ms")


def _overload(results: Results, *, search_seconds: float, seconds: float) -> None:
    """With the default queue, with clients in a hurry, and with a queue that they overfill."""
    with running(ours(BUNDLES[0])) as server:
        saturating, rate = find_saturation(server, seconds=search_seconds)
        console.print(f"saturated by {saturating} connections: {rate:.1f} /s")
        results.add("overload", **overload(server, 10 * saturating, rate, seconds=seconds))
        limit_s = round(HASTE * 10 * saturating / rate, 3)
        measured = hurry(server, 10 * saturating, rate, limit_s=limit_s, seconds=seconds)
        results.add("hurry", **measured)
    small = {"CAPSNET_MAX_WAITING_ROWS": str(SMALL_QUEUE)}
    connections = max(10 * saturating, 4 * SMALL_QUEUE)
    with running(ours(BUNDLES[0], small)) as server:
        measured = overload(server, connections, rate, queue_rows=SMALL_QUEUE, seconds=seconds)
        results.add("overload", **measured)


def _best_settings(path: Path) -> dict[str, Best]:
    """From an earlier run's results; JSON made its numbers text."""
    return {
        one["bundle"]: {
            server: {int(connections): label for connections, label in chosen.items()}
            for server, chosen in one["settings"].items()
        }
        for one in json.loads(path.read_text())["best"]
    }


if __name__ == "__main__":
    app()
