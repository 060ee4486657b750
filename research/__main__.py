"""The commands of `python -m research`."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from research.compare import is_stale, write_table
from research.controls import register
from research.rows import Row
from research.run import Result, load_sets, read_results, result_key, run_row
from research.tables import ROWS, TABLES
from training.command import EXPECTED, DataDir, run_file
from training.device import choose_device
from training.state import TrainingError

RESULTS = "results.json"


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    callback=register,
    help="Compare networks: docs/results.md.",
)
console = Console(soft_wrap=True)

RunsDir = Annotated[Path, typer.Option(help="Folder of results and unfinished runs.")]
DocsDir = Annotated[Path, typer.Option(help="Where results.json is.")]
OwnFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        exists=True,
        dir_okay=False,
        help="A Python file that declares families and rows of your own.",
    ),
]
_RUNS, _DOCS, _DATA = Path("runs/research"), Path("docs"), Path("data")


@app.command("list")
def show(*, file: OwnFile = None, runs_dir: RunsDir = _RUNS, docs_dir: DocsDir = _DOCS) -> None:
    """List tables, their rows, the seeds with a result, and whether today's code made the result.

    Results of another recipe are stale. Results that other code made may still be right.
    """
    declare(file)
    results = [*read_results(docs_dir / RESULTS), *read_results(runs_dir)]
    for name, table in TABLES.items():
        console.print(f"{name}:")
        for row in table.rows:
            own = [one for one in results if one.key == _key(row, one.seed)]
            console.print(f"  {row.name}, {row.title}, {row.images:,} images: {_known(row, own)}")


@app.command("run")
def run_rows(
    names: Annotated[
        list[str], typer.Argument(help="Names of tables or rows; * and ? are wildcards.")
    ],
    *,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, separated by commas; by default those of the page.")
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(help="Training images of each row; by default as many as it declares.", min=1),
    ] = None,
    validation: Annotated[
        bool,
        typer.Option("--validation", help="Test on held-out training images: not for the page."),
    ] = False,
    file: OwnFile = None,
    runs_dir: RunsDir = _RUNS,
    docs_dir: DocsDir = _DOCS,
    data_dir: DataDir = _DATA,
    bundles: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the record of test reads. By default the folder of runs, so that no "
            "tracked file changes."
        ),
    ] = None,
    max_minutes: Annotated[float, typer.Option(help="Save and stop after this long.")] = math.inf,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 takes them all.")] = 0,
) -> None:
    """Train rows, and read the test split once for each row and seed, at the end of its training.

    To continue after a stop, run the same command again: it skips rows with a result in the folder
    of runs, and resumes stopped rows. Rows with a result in the docs run again, and both results
    are printed.
    """
    declare(file)
    changes: dict[str, Any] = {} if images is None else {"images": images}
    if validation:
        changes["split"] = "validation"
    rows = [replace(row, **changes) for row in choose_rows(names)]
    where = choose_device(device, threads=threads)
    runs_dir.mkdir(parents=True, exist_ok=True)
    done = {one.key for one in read_results(runs_dir)}
    told = {one.key: one for one in read_results(docs_dir / RESULTS)}
    jobs = [(row, seed) for row in rows for seed in (_seeds(seeds) if seeds else row.seeds)]
    left = [job for job in jobs if _key(*job) not in done]
    console.print(f"{len(left)} of {len(jobs)} to run")
    deadline = time.monotonic() + 60 * max_minutes
    for row, seed in left:
        console.print(f"{row.name}, seed {seed}: {row.title}; {row.images:,} images")
        result = run_row(
            row,
            seed=seed,
            sets=load_sets(row, data_dir),
            directory=runs_dir,
            bundles=bundles or runs_dir,
            device=where,
            max_minutes=(deadline - time.monotonic()) / 60,
        )
        if result is None:
            console.print("stopped; the same command continues")
            return
        console.print(f"{row.split} error: {result.percent:.2f} %")
        if before := told.get(result.key):
            console.print(f"{docs_dir / RESULTS} has {before.percent:.2f} %")


@app.command("table")
def print_table(
    name: Annotated[str, typer.Argument(help="Name of a table.")],
    *,
    file: OwnFile = None,
    validation: Annotated[
        bool, typer.Option("--validation", help="Use results on held-out images.")
    ] = False,
    images: Annotated[
        int | None, typer.Option(help="Use results after this many images.", min=1)
    ] = None,
    runs_dir: RunsDir = _RUNS,
    docs_dir: DocsDir = _DOCS,
) -> None:
    """Print the errors of a table's rows and their paired differences, as Markdown."""
    declare(file)
    if name not in TABLES:
        raise TrainingError(f"{name} is no table; there are {', '.join(TABLES)}")
    split = "validation" if validation else "test"
    both = [*read_results(docs_dir / RESULTS), *read_results(runs_dir)]
    results = [one for one in {one.key: one for one in both}.values() if one.split == split]
    table = TABLES[name]
    if images is not None:
        table = table._replace(rows=tuple(replace(row, images=images) for row in table.rows))
    parts = list(write_table(table, results))
    console.print("\n\n".join(parts) or f"{name} has no results", markup=False)


def declare(file: Path | None) -> None:
    """Run a file that declares families and tables of its own: see `add_table`."""
    if file is not None:
        run_file(file)


def choose_rows(names: list[str]) -> list[Row]:
    """Rows with one of the names, and rows of tables with one of the names, each row once.

    Raises:
        TrainingError: a name matches nothing.
    """
    chosen: dict[str, Row] = {}
    for name in names:
        matching = {
            row.name: ROWS[row.name]
            for table, declared in TABLES.items()
            for row in declared.rows
            if fnmatchcase(row.name, name) or fnmatchcase(table, name)
        }
        if not matching:
            raise TrainingError(f"{name} is no row and no table; there are {', '.join(TABLES)}")
        chosen |= matching
    return list(chosen.values())


def main() -> None:
    """Run the command line; expected failures are one line, not a traceback."""
    try:
        app()
    except EXPECTED as error:
        Console(stderr=True).print(str(error), style="red", markup=False, soft_wrap=True)
        raise SystemExit(1) from error


def _key(row: Row, seed: int) -> str:
    return result_key(row.name, seed=seed, images=row.images, split=row.split)


def _known(row: Row, own: list[Result]) -> str:
    """The seeds of a row's results, and which of these are stale."""
    if not own:
        return "not run"
    seeds = sorted({one.seed for one in own})
    text = f"seeds {', '.join(map(str, seeds))}"
    if stale := sorted({one.seed for one in own if is_stale(row, one)}):
        text += f"; stale: {', '.join(map(str, stale))}"
    return text


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise TrainingError(f"seeds are numbers separated by commas, not {text}") from error


if __name__ == "__main__":
    main()
