"""`python -m tests.fire`: load, faults and malice on started services, and what callers see."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tests.attack.__main__ import ALL, attack_all
from tests.fire import faults, fuzz, load
from tests.fire.load import Table, write

app = typer.Typer(pretty_exceptions_enable=False)


def attacks() -> Table:
    """Every attack of `make attack`."""
    columns = ["", "attacks", "as they should be", "slowest p99 of others, ms"]
    table = Table("Attacks, next to a client of ten requests a second", columns)
    results = list(attack_all(ALL, seconds=5))
    good = sum(not one.faults for one in results)
    slowest = max(one.client.p99_ms for one in results)
    wrong = [f"{one.case.title}: {fault}" for one in results for fault in one.faults]
    table.add("`make attack`", len(results), good, f"{slowest:.0f}", faults=wrong)
    return table


@app.command()
def main(
    *,
    part: Annotated[list[str] | None, typer.Option(help="Only this; may be repeated.")] = None,
    requests: Annotated[int, typer.Option(min=100, help="Of the fuzzer.")] = 100_000,
    output: Annotated[Path, typer.Option("--json")] = Path("runs/fire.json"),
    page: Annotated[bool, typer.Option("--page", help="Write docs/reliability.md too.")] = False,
) -> None:
    """Run all parts, one after the other; exit with 1 if one breaks a promise."""
    known: dict[str, Callable[[], Table]] = {
        "load": load.overload,
        "quiet": load.quiet_client_beside_others,
        "faults": faults.table,
        "fuzz": partial(fuzz.fuzz, requests=requests),
        "attack": attacks,
    }
    if unknown := sorted(set(part or ()) - known.keys()):
        raise typer.BadParameter(f"{', '.join(unknown)}; known: {', '.join(known)}")
    output.parent.mkdir(parents=True, exist_ok=True)
    tables: list[Table] = []
    for name in part or known:
        tables.append(table := known[name]())
        print(f"\n{table.part}\n\n{table.markdown()}", flush=True)
        for fault in table.faults:
            print(f"NOT {fault}", flush=True)
        output.write_text(json.dumps([asdict(one) for one in tables], indent=1) + "\n")
    if page:
        write(tables)
    raise typer.Exit(int(any(one.faults for one in tables)))


if __name__ == "__main__":
    app()
