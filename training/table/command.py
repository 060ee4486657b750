"""`python -m training table`: run rows, and write the page."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from rich.console import Console

from training.hardware.device import choose_device
from training.hardware.memory import keep_freed_memory
from training.run.plan import TrainingError
from training.table.charts import draw_pictures
from training.table.encoders import read_encoders
from training.table.page import missing_rows, write_page
from training.table.results import read_results, write_results
from training.table.row import Row
from training.table.rows import ROWS
from training.table.running import Sets, load_sets, row_key, run_row

app = typer.Typer(no_args_is_help=True, help="Run the rows of the paper's table, and write them.")
console = Console()

RUNS = Path("runs/table")
DOCS = Path("docs")
RESULTS, ENCODERS, PAGE, PICTURES = "results.json", "encoders.json", "results.md", "pictures"


class Job(NamedTuple):
    """One row and seed."""

    row: Row
    seed: int


@app.command()
def run(
    *,
    rows: Annotated[
        str, typer.Option(help="Names or patterns, by comma; * takes full-size rows too.")
    ] = "*-compact",
    seeds: Annotated[str, typer.Option(help="By comma.")] = "1",
    budget: Annotated[
        int | None, typer.Option(help="Images each row is trained with; by default its own.", min=1)
    ] = None,
    validation: Annotated[
        bool,
        typer.Option("--validation", help="Test on held-out training images: not for the page."),
    ] = False,
    runs_dir: Annotated[Path, typer.Option(help="Results and what is begun.")] = RUNS,
    data_dir: Annotated[
        Path,
        typer.Option(envvar="CAPSNET_DATA_DIR", help="Data sets; missing files are downloaded."),
    ] = Path("data"),
    max_minutes: Annotated[float, typer.Option(help="Save and stop after this long.")] = math.inf,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 takes them all.")] = 0,
) -> None:
    """Train rows with a fixed budget and read the test split once for each, at the end.

    Rows with a result are skipped and one that was stopped goes on, so the same command continues.
    """
    changes: dict[str, Any] = {} if budget is None else {"images": budget}
    if validation:
        changes["split"] = "validation"
    chosen = [replace(row, **changes) for row in choose_rows(rows)]
    where = choose_device(device)
    if threads:
        torch.set_num_threads(threads)
    if where.type == "cpu":
        keep_freed_memory()
    jobs = [Job(row, seed) for seed in _seeds(seeds) for row in chosen]
    run_jobs(
        jobs,
        load=lambda row: load_sets(row, data_dir),
        directory=runs_dir,
        device=where,
        max_minutes=max_minutes,
    )


@app.command()
def write(
    *,
    runs_dir: Annotated[Path, typer.Option(help="Results to add.")] = RUNS,
    docs_dir: Annotated[Path, typer.Option(help="Where results.json and results.md lie.")] = DOCS,
) -> None:
    """Write docs/results.json, the page made of it and its pictures.

    Results in the docs stay, but for those that were run again.
    """
    both = [*read_results(docs_dir / RESULTS), *read_results(runs_dir)]
    by_key = {one.key: one for one in both if one.row in ROWS and one.split == ROWS[one.row].split}
    results = [by_key[key] for key in sorted(by_key)]
    if missing := missing_rows(results):
        names = ",".join(row.name for row in missing)
        raise TrainingError(
            f"only full-size rows may be missing; run them by: table run --rows {names}"
        )
    write_results(results, docs_dir / RESULTS)
    encoders = read_encoders(docs_dir / ENCODERS)
    (docs_dir / PAGE).write_text(write_page(results, encoders))
    draw_pictures(results, encoders, docs_dir / PICTURES)
    console.print(f"wrote {docs_dir / PAGE}: {len(results)} results")


def choose_rows(patterns: str) -> list[Row]:
    """Rows whose names match one of the patterns.

    Raises:
        TrainingError: a pattern matches none.
    """
    wanted = patterns.split(",")
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in ROWS):
            raise TrainingError(f"{pattern} is no row; there are {', '.join(ROWS)}")
    return [
        row for name, row in ROWS.items() if any(fnmatchcase(name, pattern) for pattern in wanted)
    ]


def run_jobs(
    jobs: list[Job],
    *,
    load: Callable[[Row], Sets],
    directory: Path,
    device: torch.device,
    max_minutes: float,
) -> None:
    """Run what has no result yet, one after the other; stops where training is stopped."""
    directory.mkdir(parents=True, exist_ok=True)
    done = {one.key for one in read_results(directory)}
    left = [Job(row, seed) for row, seed in jobs if row_key(row, seed=seed) not in done]
    console.print(f"{len(left)} of {len(jobs)} to run, {_estimate(left)}")
    deadline = time.monotonic() + 60 * max_minutes
    for place, (row, seed) in enumerate(left):
        console.print(
            f"{place + 1}/{len(left)} {row.name}, seed {seed}: {row.title}; {row.images:,} to see"
        )
        result = run_row(
            row,
            seed=seed,
            sets=load(row),
            directory=directory,
            device=device,
            max_minutes=(deadline - time.monotonic()) / 60,
        )
        if result is None:
            console.print("stopped; the same command goes on")
            return
        errors = ", ".join(f"{name} {error:.2f} %" for name, error in result.errors.items())
        console.print(f"{row.split} error: {errors}; left {_estimate(left[place + 1 :])}")


def _estimate(jobs: list[Job]) -> str:
    minutes = sum(row.seconds for row, _ in jobs) / 60
    if math.isinf(minutes):
        return "with full-size rows: for a GPU"
    return f"about {minutes:.0f} minutes on two CPU cores"


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise TrainingError(f"seeds are numbers, by comma; not {text}") from error
