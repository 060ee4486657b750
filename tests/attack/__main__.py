"""`python -m tests.attack`: attack a started service, and tell how it and others fare."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.attack import ALL
from tests.attack.cases import Case
from tests.attack.report import HEADER, row
from tests.attack.runner import Limits, Result, recovers, run
from tests.attack.service import ROOT, Service, started, warm_up

PATIENCE_S = 90.0
"""How long patient attacks go on: longer than any timer of the service."""
app = typer.Typer(pretty_exceptions_enable=False)
console = Console(highlight=False, soft_wrap=True)


@app.command()
def main(
    *,
    case: Annotated[list[str] | None, typer.Option(help="Only this; may be repeated.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Of an attack that repeats itself.")] = 5,
    output: Annotated[Path | None, typer.Option("--json", help="Results, for comparing.")] = None,
    source: Annotated[Path, typer.Option(help="Tree of the service that is attacked.")] = ROOT,
) -> None:
    """Run each attack next to a well-behaved client; exit with 1 if one harms it or the service."""
    if unknown := sorted(set(case or ()) - {one.name for one in ALL}):
        raise typer.BadParameter(f"{', '.join(unknown)}; known: {', '.join(o.name for o in ALL)}")
    chosen = [one for one in ALL if not case or one.name in case]
    began, results = time.monotonic(), []
    console.print(HEADER)
    for result in attack_all(chosen, seconds=seconds, source=source.resolve()):
        results.append(result)
        console.print(row(result))
    failed = sum(not one.ok for one in results)
    console.print(f"\n{failed} of {len(results)} not ok, {time.monotonic() - began:.0f} s")
    if output:
        output.write_text(json.dumps([one.to_dict() for one in results], indent=1))
    raise typer.Exit(int(bool(failed)))


def attack_all(cases: list[Case], *, seconds: float, source: Path) -> Iterator[Result]:
    """Each door's attacks on one service, which is started anew if it does not recover."""
    for door, behind in groupby(cases, lambda one: one.door):
        waiting = groups(list(behind))
        while waiting:
            with started(door, source=source) as service:
                asyncio.run(warm_up(service.target))
                yield from until_lost(waiting, service, seconds)


def until_lost(waiting: list[list[Case]], service: Service, seconds: float) -> Iterator[Result]:
    """Run groups, which are taken from the list, for as long as the service recovers."""
    while waiting:
        group = waiting.pop(0)
        lasting_s = PATIENCE_S if group[0].patient else seconds
        results = run(group, service, seconds=lasting_s, limits=Limits())
        yield from results
        if group[0].fatal or (not all(one.ok for one in results) and not recovers(service)):
            return


def groups(cases: list[Case]) -> list[list[Case]]:
    """All by themselves, but patient attacks at once; fatal ones last."""
    alone = [[one] for one in cases if not (one.patient or one.fatal)]
    patient = [one for one in cases if one.patient]
    return [*alone, *([patient] if patient else []), *([one] for one in cases if one.fatal)]


if __name__ == "__main__":
    app()
