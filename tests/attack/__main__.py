"""`python -m tests.attack`: attack a started service, and tell how it and others fare."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.table import Table

from tests.attack import grpc_attacks, http_attacks
from tests.attack.runner import Case, Result, recovers, run
from tests.attack.service import Door, Service, started, warm_up

PATIENCE_S = 90.0
"""How long patient attacks go on: longer than any timer of the service."""
ALL = sorted(
    [*http_attacks.CASES, *grpc_attacks.CASES], key=lambda one: get_args(Door).index(one.door)
)
"""Every attack, those on one service together."""
app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    *,
    case: Annotated[list[str] | None, typer.Option(help="Only this; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Of an attack that repeats itself.")] = 5,
    output: Annotated[Path | None, typer.Option("--json", help="Results, for comparing.")] = None,
) -> None:
    """Run each attack next to a well-behaved client; exit with 1 if one harms it or the service."""
    if unknown := sorted(set(case or ()) - {one.name for one in ALL}):
        raise typer.BadParameter(f"{', '.join(unknown)}; known: {', '.join(o.name for o in ALL)}")
    chosen = [one for one in ALL if not case or one.name in case]
    results = []
    table = Table("attack", "answers", "p99 ms", "others ok/ref/fail", "MiB", "verdict")
    for result in attack_all(chosen, seconds=seconds):
        results.append(result)
        table.add_row(*cells(result))
        print(f"{result.case.name}: {'; '.join(result.faults) or 'ok'}", flush=True)
    Console(width=160).print(table)
    if output:
        output.write_text(json.dumps([one.to_dict() for one in results], indent=1))
    raise typer.Exit(int(any(one.faults for one in results)))


def cells(result: Result) -> list[str]:
    """A row of the table."""
    seen = result.client
    return [
        f"{result.case.title} ({result.case.door})",
        ", ".join(f"{outcome}: {count}" for outcome, count in result.outcomes.most_common()),
        f"{seen.p99_ms:,.0f}",
        f"{seen.right}/{seen.refused}/{sum(seen.missed.values())}",
        f"{result.before_mib:.0f}, {result.after_mib:.0f}",
        "; ".join(result.faults) or "ok",
    ]


def attack_all(cases: Sequence[Case], *, seconds: float) -> Iterator[Result]:
    """Each door's attacks on one service, which is started anew if it does not recover."""
    for door, behind in groupby(cases, lambda one: one.door):
        waiting = groups(list(behind))
        while waiting:
            with started(door) as service:
                asyncio.run(warm_up(service.target))
                yield from until_lost(waiting, service, seconds)


def until_lost(waiting: list[list[Case]], service: Service, seconds: float) -> Iterator[Result]:
    """Run groups, which are taken from the list, for as long as the service recovers."""
    while waiting:
        group = waiting.pop(0)
        results = run(group, service, seconds=PATIENCE_S if group[0].patient else seconds)
        yield from results
        if any(one.faults for one in results) and not recovers(service):
            return


def groups(cases: list[Case]) -> list[list[Case]]:
    """All by themselves, but patient attacks at once."""
    patient = [one for one in cases if one.patient]
    return [*([one] for one in cases if not one.patient), *([patient] if patient else [])]


if __name__ == "__main__":
    app()
