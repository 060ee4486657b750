"""Many pictures: a table or a file of answers, and a progress bar."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from capsnet._generated import DescribeAnswer, FailedPrediction, Prediction
from capsnet.client import CapsNet
from capsnet.errors import Problem

T = TypeVar("T")

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".npy"})
STDIN = Path("-")
COLUMNS = (
    *("file", "label", "class_name", "length", "probability", "labels"),
    *("novelty", "novel", "error"),
)
_FORMULA = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""The first characters of formulas, also the full-width ones."""
Outcome = Prediction | FailedPrediction


def find_pictures(paths: Sequence[Path]) -> list[Path]:
    """The files themselves, and those in folders, by name.

    Raises:
        FileNotFoundError: one does not exist.
        ValueError: a folder holds no picture.
    """
    files: list[Path] = []
    for path in paths:
        if path != STDIN and not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
        inside = sorted(one for one in path.rglob("*") if one.suffix.lower() in SUFFIXES)
        if path.is_dir() and not inside:
            raise ValueError(f"{path} holds no picture ({', '.join(sorted(SUFFIXES))})")
        files += inside if path.is_dir() else [path]
    return files


def to_row(path: Path, outcome: Outcome) -> dict[str, Any]:
    """One line of a table."""
    if isinstance(outcome, FailedPrediction):
        return {"file": str(path), "error": outcome.problem.detail}
    novelty = outcome.novelty
    return {
        "file": str(path),
        "label": outcome.label,
        "class_name": outcome.class_name,
        "length": outcome.length,
        "probability": outcome.probability,
        "labels": _or(outcome),
        "novelty": novelty and novelty.score,
        "novel": novelty and novelty.novel,
    }


def describe_each(
    client: CapsNet, files: Iterable[Path], options: dict[str, Any]
) -> Iterator[DescribeAnswer | Problem]:
    """The description of each file in turn, or why it was refused."""

    def describe(file: Path) -> DescribeAnswer | Problem:
        try:
            return client.describe(file, **options)
        except Problem as problem:
            return problem

    yield from map(describe, files)


def write_readings(
    path: Path | None, answers: Iterable[tuple[Path, DescribeAnswer | Problem]]
) -> int:
    """Write one line for each description, to a .csv file or to standard output.

    The two digits of a pair have a line each. Returns how many pictures were refused.

    Raises:
        ValueError: the file's suffix is another one.
    """
    if path and path.suffix != ".csv":
        raise ValueError(f"readings are written to a .csv file, not {path}")
    rows: list[dict[str, Any]] = []
    failed = 0
    for file, answer in answers:
        if isinstance(answer, Problem):
            failed += 1
            rows.append({"file": str(file), "error": str(answer)})
            continue
        parts: list[Any] = [answer, *([answer.second] if answer.second else [])]
        for part in parts:
            row = {"file": str(file), "class_name": part.class_name, "length": part.length}
            for one in part.readings:
                row[f"{one.name} ({one.unit})" if one.unit else one.name] = one.value
            rows.append(row | {"sentence": answer.sentence})
    names = dict.fromkeys(name for row in rows for name in row)
    with path.open("w", newline="", encoding="utf-8") if path else nullcontext(sys.stdout) as out:
        writer = csv.DictWriter(out, list(names), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: quote_formula(cell) for name, cell in row.items()})
    return failed


def followed(outcomes: Iterable[T], total: int) -> Iterator[T]:
    """The same, with a progress bar on standard error if that is a terminal."""
    console = Console(stderr=True)
    yield from track(
        outcomes,
        "asking",
        total=total,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def quote_formula(cell: object) -> object:
    """A cell of a CSV file. Spreadsheets run a text as a formula by its first character.

    Such a text gets an apostrophe before it, which spreadsheets do not show.
    """
    is_formula = isinstance(cell, str) and cell.lstrip(" ")[:1] in _FORMULA
    return f"'{cell}" if is_formula else cell


def write_answers(path: Path, answers: Iterable[tuple[Path, Outcome]]) -> int:
    """A .csv or .jsonl file of the answers, each written as it comes; how many failed.

    Raises:
        ValueError: the file's suffix is another one.
    """
    if path.suffix not in (".csv", ".jsonl"):
        raise ValueError(f"answers are written to a .csv or .jsonl file, not {path}")
    with path.open("w", newline="", encoding="utf-8", errors="replace") as file:
        return (_write_csv if path.suffix == ".csv" else _write_lines)(file, answers)


def write_list(answers: Iterable[tuple[Path, Outcome]]) -> int:
    """One line of JSON on standard output, a list; how many failed."""
    members = [_to_members(path, outcome) for path, outcome in answers]
    sys.stdout.write(f"{json.dumps(members)}\n")
    return sum("problem" in one for one in members)


def show_table(console: Console, answers: Iterable[tuple[Path, Outcome]]) -> int:
    """A table of the answers; how many failed."""
    table, failed = Table(), 0
    for heading in ("picture", "class", "length"):
        table.add_column(heading)
    for path, outcome in answers:
        if isinstance(outcome, FailedPrediction):
            failed += 1
            table.add_row(Text(str(path)), Text(outcome.problem.detail, "red"), "")
        else:
            novel = " novel" if outcome.novelty and outcome.novelty.novel else ""
            name = _or(outcome) or outcome.class_name
            table.add_row(Text(str(path)), Text(f"{name}{novel}"), f"{outcome.length:.3f}")
    console.print(table)
    return failed


def _or(prediction: Prediction) -> str | None:
    """The set of labels in words, such as `cat or dog`; None where it was not asked for."""
    labels = prediction.labels
    return " or ".join(one.class_name for one in labels) if labels else None


def _to_members(path: Path, outcome: Outcome) -> dict[str, Any]:
    return {"file": str(path), **outcome.to_dict()}


def _write_csv(file: IO[str], answers: Iterable[tuple[Path, Outcome]]) -> int:
    writer: csv.DictWriter[str] = csv.DictWriter(file, COLUMNS)
    failed = 0
    writer.writeheader()
    for path, outcome in answers:
        failed += isinstance(outcome, FailedPrediction)
        row = to_row(path, outcome)
        writer.writerow({name: quote_formula(cell) for name, cell in row.items()})
    return failed


def _write_lines(file: IO[str], answers: Iterable[tuple[Path, Outcome]]) -> int:
    failed = 0
    for path, outcome in answers:
        failed += isinstance(outcome, FailedPrediction)
        file.write(f"{json.dumps(_to_members(path, outcome))}\n")
    return failed
