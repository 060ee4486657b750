"""`python -m tests.fire`: load, faults and malice on started services, and what callers see."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as Shown

from tests.attack import ALL
from tests.attack.__main__ import attack_all
from tests.attack.service import ROOT
from tests.fire import faults, fuzz, load, soak
from tests.fire.table import Table

app = typer.Typer(pretty_exceptions_enable=False)
console = Console(highlight=False)


def attacks() -> Iterator[Table]:
    """Every attack of `make attack`, so far."""
    columns = ["", "attacks", "as they should be", "slowest p99 of others, ms"]
    table = Table("Attacks, next to a client of ten requests a second", columns)
    results = []
    for result in attack_all(ALL, seconds=5, source=ROOT):
        results.append(result)
        table.faults += [f"{result.title}: {fault}" for fault in result.faults]
        slowest = max(one.client.p99_ms for one in results if one.client.answered)
        good = sum(one.ok for one in results)
        table.rows = [["`make attack`", str(len(results)), str(good), f"{slowest:.0f}"]]
        yield table


def parts(*, requests: int, soak_minutes: float) -> dict[str, Callable[[], Iterator[Table]]]:
    """All parts, by name; each gives its table again and again, until it is complete."""

    def once(make: Callable[[], Table]) -> Iterator[Table]:
        yield make()

    return {
        "latency": partial(once, load.stages),
        "load": partial(once, load.overload),
        "quiet": partial(once, load.quiet_client),
        "faults": partial(faults.table, faults.FAULTS),
        "fuzz": partial(once, partial(fuzz.fuzz, requests=requests)),
        "attack": attacks,
        "soak": partial(once, partial(soak.soak, seconds=60 * soak_minutes)),
    }


@app.command()
def main(
    *,
    part: Annotated[list[str] | None, typer.Option(help="Only this; may be repeated.")] = None,
    requests: Annotated[int, typer.Option(min=100, help="Of the fuzzer.")] = 100_000,
    soak_minutes: Annotated[float, typer.Option(min=0.2)] = 5,
    output: Annotated[Path, typer.Option("--json")] = Path("runs/fire.json"),
) -> None:
    """Run all parts, one after the other; exit with 1 if one breaks a promise.

    The file has each part as soon as that ends. With --part, the file keeps its other parts.
    """
    known = parts(requests=requests, soak_minutes=soak_minutes)
    if unknown := sorted(set(part or ()) - known.keys()):
        raise typer.BadParameter(f"{', '.join(unknown)}; known: {', '.join(known)}")
    kept = json.loads(output.read_text()) if part and output.exists() else []
    tables: list[Table] = []
    output.parent.mkdir(parents=True, exist_ok=True)
    for name in part or known:
        began = time.monotonic()
        for table in known[name]():
            console.print(f"[dim]{name}: {len(table.rows)} rows, {len(table.faults)} faults[/]")
        table.seconds = time.monotonic() - began
        tables.append(table)
        show(table)
        new = {one.part for one in tables}
        saved = [one for one in kept if one["part"] not in new]
        saved += [one.to_dict() for one in tables]
        output.write_text(json.dumps(saved, indent=1) + "\n")
    raise typer.Exit(int(any(one.faults for one in tables)))


def show(table: Table) -> None:
    """Print a table, and what is wrong."""
    shown = Shown(*table.columns, title=f"{table.part} ({table.seconds:.0f} s)")
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    for fault in table.faults:
        console.print(f"[red]NOT[/] {fault}")


if __name__ == "__main__":
    app()
