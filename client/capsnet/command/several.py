"""Many pictures: a table or a file of answers, and a progress bar."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from capsnet._generated import DescribeAnswer, FailedPrediction, Prediction
from capsnet.client import CapsNet
from capsnet.errors import Problem

T = TypeVar("T")
Row = dict[str, Any]
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".npy"})
STDIN = Path("-")
COLUMNS = (
    *("file", "label", "class_name", "length", "probability", "labels"),
    *("novelty", "novel", "error"),
)
_FORMULA = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""The first characters of formulas, also the full-width ones."""
Answers = Iterable[tuple[Path, Prediction | FailedPrediction]]
"""Files, each with what was answered."""


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


def describe_each(
    client: CapsNet, files: Iterable[Path], options: dict[str, Any]
) -> Iterator[DescribeAnswer | FailedPrediction]:
    """The description of each file in turn, or why it was refused."""

    def describe(file: Path) -> DescribeAnswer | FailedPrediction:
        try:
            return client.describe(file, **options)
        except Problem as problem:
            return FailedPrediction(problem=problem)

    return map(describe, files)


def followed(
    files: Sequence[Path], outcomes: Iterable[T], failed: list[Path]
) -> Iterator[tuple[Path, T]]:
    """Files with their outcomes; those that fail are added to `failed`.

    A progress bar is on standard error if that is a terminal.
    """
    console = Console(stderr=True)
    shown = track(
        zip(files, outcomes, strict=True),
        "asking",
        total=len(files),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    for file, outcome in shown:
        if isinstance(outcome, FailedPrediction):
            failed.append(file)
        yield file, outcome


def write_readings(
    path: Path | None, answers: Iterable[tuple[Path, DescribeAnswer | FailedPrediction]]
) -> None:
    """Write one line for each description, to a .csv file or to standard output.

    The two digits of a pair have a line each.

    Raises:
        ValueError: the file's suffix is another one.
    """
    if path and path.suffix != ".csv":
        raise ValueError(f"readings are written to a .csv file, not {path}")
    rows: list[Row] = []
    for file, answer in answers:
        if isinstance(answer, FailedPrediction):
            rows.append({"file": str(file), "error": str(answer.problem)})
            continue
        parts: list[Any] = [answer, *([answer.second] if answer.second else [])]
        for part in parts:
            row = {"file": str(file), "class_name": part.class_name, "length": part.length}
            for one in part.readings:
                row[f"{one.name} ({one.unit})" if one.unit else one.name] = one.value
            rows.append(row | {"sentence": answer.sentence})
    _write_csv(path, list(dict.fromkeys(name for row in rows for name in row)), rows)


def write_answers(path: Path, answers: Answers) -> None:
    """Write a .csv or .jsonl file of the answers, each as it comes.

    Raises:
        ValueError: the file's suffix is another one.
    """
    if path.suffix == ".csv":
        _write_csv(path, COLUMNS, (_to_row(file, outcome) for file, outcome in answers))
    elif path.suffix == ".jsonl":
        with path.open("w", encoding="utf-8") as lines:
            for file, outcome in answers:
                lines.write(f"{json.dumps({'file': str(file), **outcome.to_dict()})}\n")
    else:
        raise ValueError(f"answers are written to a .csv or .jsonl file, not {path}")


def _write_csv(path: Path | None, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write a table to a file, or to standard output."""
    file = path and path.open("w", newline="", encoding="utf-8", errors="replace")
    with file or nullcontext(sys.stdout) as out:
        writer = csv.DictWriter(out, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: quote_formula(cell) for name, cell in row.items()})


def quote_formula(cell: object) -> object:
    """A cell of a CSV file. Spreadsheets run a text as a formula by its first character.

    Such a text gets an apostrophe before it, which spreadsheets do not show.
    """
    is_formula = isinstance(cell, str) and cell.lstrip(" ")[:1] in _FORMULA
    return f"'{cell}" if is_formula else cell


def _to_row(path: Path, outcome: Prediction | FailedPrediction) -> Row:
    if isinstance(outcome, FailedPrediction):
        return {"file": str(path), "error": outcome.problem.detail}
    row: Row = {name: getattr(outcome, name) for name in ("label", "class_name", "length")}
    row |= {"file": str(path), "probability": outcome.probability, "labels": _or(outcome)}
    if outcome.novelty:
        row |= {"novelty": outcome.novelty.score, "novel": outcome.novelty.novel}
    return row


def show_table(console: Console, answers: Answers) -> None:
    """A table of the answers."""
    table = Table()
    for heading in ("picture", "class", "length"):
        table.add_column(heading)
    for path, outcome in answers:
        if isinstance(outcome, FailedPrediction):
            table.add_row(Text(str(path)), Text(outcome.problem.detail, "red"), "")
        else:
            novel = " novel" if outcome.novelty and outcome.novelty.novel else ""
            name = _or(outcome) or outcome.class_name
            table.add_row(Text(str(path)), Text(f"{name}{novel}"), f"{outcome.length:.3f}")
    console.print(table)


def _or(prediction: Prediction) -> str | None:
    """The set of labels in words, such as `cat or dog`; None where it was not asked for."""
    labels = prediction.labels
    return " or ".join(one.class_name for one in labels) if labels else None
