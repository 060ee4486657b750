"""Comparisons of networks: rows are declared, run one at a time, and reported in docs/results.md.

The commands of `python -m training experiment` are here.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from model.bundle import MANIFEST, Bundle
from training.device import choose_device
from training.experiments.declare import COMPARISONS, Row
from training.experiments.run import load_sets, read_results, result_key, run_row, write_results
from training.experiments.seeds import SEEDS, register
from training.state import TrainingError

EXPERIMENTS = {one.name: one for one in (*SEEDS, *COMPARISONS)}
ROWS = {row.name: row for one in EXPERIMENTS.values() for row in one.rows}
RESULTS, PAGE, PICTURES, SPEEDS = "results.json", "results.md", "pictures", "speeds.json"

app = typer.Typer(
    no_args_is_help=True, callback=register, help="Compare networks: docs/results.md."
)
console = Console()

RunsDir = Annotated[Path, typer.Option(help="Folder of results and unfinished runs.")]
DocsDir = Annotated[Path, typer.Option(help="Where results.json and results.md are.")]
DataDir = Annotated[
    Path, typer.Option(envvar="CAPSNET_DATA_DIR", help="Data sets; missing files are downloaded.")
]
_RUNS, _DOCS, _DATA = Path("runs/experiments"), Path("docs"), Path("data")
_BUNDLES = Path("model/bundles")


@app.command("run")
def run_rows(
    names: Annotated[list[str], typer.Argument(help="Of experiments or rows; * and ? match.")],
    *,
    seeds: Annotated[str, typer.Option(help="Comma-separated.")] = "1",
    images: Annotated[
        int | None, typer.Option(help="Training images of each row; by default its own.", min=1)
    ] = None,
    validation: Annotated[
        bool,
        typer.Option("--validation", help="Test on held-out training images: not for the page."),
    ] = False,
    runs_dir: RunsDir = _RUNS,
    docs_dir: DocsDir = _DOCS,
    data_dir: DataDir = _DATA,
    max_minutes: Annotated[float, typer.Option(help="Save and stop after this long.")] = math.inf,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    threads: Annotated[int, typer.Option(help="CPU threads; 0 takes them all.")] = 0,
) -> None:
    """Train rows and read the test split once for each and seed, at the end.

    Rows with a result are skipped and one that was stopped goes on: the same command continues.
    """
    changes: dict[str, Any] = {} if images is None else {"images": images}
    if validation:
        changes["split"] = "validation"
    rows, numbers = [replace(row, **changes) for row in choose_rows(names)], _seeds(seeds)
    where = choose_device(device, threads=threads)
    runs_dir.mkdir(parents=True, exist_ok=True)
    done = {one.key for one in (*read_results(runs_dir), *read_results(docs_dir / RESULTS))}
    jobs = [(row, seed) for seed in numbers for row in rows if _key(row, seed) not in done]
    console.print(f"{len(jobs)} of {len(rows) * len(numbers)} to run")
    deadline = time.monotonic() + 60 * max_minutes
    for row, seed in jobs:
        console.print(f"{row.name}, seed {seed}: {row.title}; {row.images:,} images")
        result = run_row(
            row,
            seed=seed,
            sets=load_sets(row, data_dir),
            directory=runs_dir,
            device=where,
            max_minutes=(deadline - time.monotonic()) / 60,
        )
        if result is None:
            console.print("stopped; the same command continues")
            return
        errors = ", ".join(f"{name} {result.percent(name):.2f} %" for name in result.wrong)
        console.print(f"{row.split} error: {errors}")


@app.command("list")
def show(*, runs_dir: RunsDir = _RUNS, docs_dir: DocsDir = _DOCS) -> None:
    """List experiments and their rows, and the seeds that have a result."""
    results = [*read_results(docs_dir / RESULTS), *read_results(runs_dir)]
    for one in EXPERIMENTS.values():
        console.print(f"{one.name}: {one.title}", soft_wrap=True)
        for row in one.rows:
            seeds = sorted({each.seed for each in results if each.key == _key(row, each.seed)})
            known = f"seeds {', '.join(map(str, seeds))}" if seeds else "not run"
            console.print(f"  {row.name}, {row.images:,} images: {known}", soft_wrap=True)


@app.command("write")
def write_page(
    *,
    runs_dir: RunsDir = _RUNS,
    docs_dir: DocsDir = _DOCS,
    data_dir: DataDir = _DATA,
    bundles: Annotated[Path, typer.Option(help="Whose cards tell the mean over seeds.")] = _BUNDLES,
) -> None:
    """Add results to docs/results.json, and write the page and its pictures from them.

    Those of rows that are no longer declared stay in the file, as reads of the test split. The card
    of a bundle that has its row's name gets the mean over seeds.
    """
    from training.experiments import report  # noqa: PLC0415  training itself needs no figures

    both = [*read_results(docs_dir / RESULTS), *read_results(runs_dir)]
    kept = {one.key: one for one in both if one.row not in ROWS or one.split == ROWS[one.row].split}
    results = [kept[key] for key in sorted(kept)]
    write_results(results, docs_dir / RESULTS)
    experiments = tuple(EXPERIMENTS.values())
    opened = [Bundle.open(path.parent) for path in bundles.glob(f"*/{MANIFEST}")]
    for bundle in opened:
        report.tell_seeds(bundle, results)
    manifests = [bundle.manifest for bundle in opened]
    speeds = docs_dir / SPEEDS
    measured = json.loads(speeds.read_text()) if speeds.exists() else None
    (docs_dir / PAGE).write_text(report.write_page(experiments, results, manifests, measured))
    report.draw_pictures(
        experiments, results, docs_dir / PICTURES, runs=runs_dir, data_dir=data_dir
    )
    console.print(f"wrote {docs_dir / PAGE}: {len(results)} results")


def choose_rows(names: list[str]) -> list[Row]:
    """Rows that have, or whose experiment has, one of the names; each once.

    Raises:
        TrainingError: a name matches nothing.
    """
    chosen: dict[str, None] = {}
    for name in names:
        found = [
            row.name
            for one in EXPERIMENTS.values()
            for row in one.rows
            if fnmatchcase(row.name, name) or fnmatchcase(one.name, name)
        ]
        if not found:
            raise TrainingError(
                f"{name} is no row and no experiment; there are {', '.join(EXPERIMENTS)}"
            )
        chosen |= dict.fromkeys(found)
    return [ROWS[name] for name in chosen]


def _key(row: Row, seed: int) -> str:
    return result_key(row.name, seed=seed, images=row.images, split=row.split)


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise TrainingError(f"seeds are numbers, by comma; not {text}") from error
