"""Fit directions to what is known of images from elsewhere, such as an age or a camera's angle.

The drawing of a moved pose shows no age that could be measured. It is encoded again, and the value
is read from the new pose.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from model.bundle.directions import READABLE, Direction
from model.loaded import fit_picture
from model.measures import Doubles, Measure, measures_of
from model.runtime import Runtime
from training.analysis.directions import (
    LEAST,
    Shown,
    decode_class,
    divide_class,
    fit_class,
    fit_readings,
    read_held_out,
)
from training.answers import Answers, encode
from training.data.source import DatasetError

_COLUMN = re.compile(r"(?P<name>[\w .-]{1,64}?)\s*(?:\((?P<unit>[^()]*)\))?")


def show_values(answers: Answers) -> Shown:
    """The poses of rendered objects, and what is known of these."""
    assert answers.values is not None
    return Shown(answers.poses, answers.labels[:, None], answers.values[:, None])


def fit_factors(
    runtime: Runtime, learnt: Shown, held_out: Shown | None, columns: Sequence[Measure]
) -> Iterator[tuple[str, Direction | None]]:
    """Fit a direction for each column of known values, class by class.

    Yields:
        A sentence, and the direction; None where there are too few images or no relation.
    """
    for label in np.unique(learnt.labels).tolist():
        name = runtime.bundle.manifest.class_names[label]
        posed = divide_class(learnt, held_out, label)
        if posed is None:
            count = int((learnt.labels == label).sum())
            yield f"{name}: {count} pictures are too few; {LEAST} are needed", None
            continue
        values, read = read_held_out(posed)
        r2 = 1 - np.square(values - read).mean(axis=0) / (values.var(axis=0) + 1e-12)
        for index in np.flatnonzero(r2 < READABLE).tolist():
            sentence = (
                f"{name}, {columns[index].name}: no relation to the pose was found "
                f"(R² {r2[index]:.2f} on {len(values)} held-out pictures)"
            )
            yield sentence, None
        if related := np.flatnonzero(r2 >= READABLE).tolist():
            chosen = posed._replace(values=posed.values[:, related])
            drawn = partial(_read_again, runtime, label, *fit_readings(chosen, chosen.fitted))
            measures = [columns[row] for row in related]
            for direction in fit_class(chosen, drawn, measures=measures, label=label):
                yield _describe(name, direction, len(values)), direction


def read_factors(runtime: Runtime, table: Path, folder: Path) -> tuple[list[Measure], Shown]:
    """Read a table of pictures: `file`, then columns of numbers, `name` or `name (unit)`.

    A picture is of the class that its subfolder names, or else of the class that the network sees.

    Raises:
        DatasetError: a column, a number or a picture cannot be used.
    """
    with table.open(newline="", encoding="utf-8-sig") as lines:
        head, *rows = [row for row in csv.reader(lines) if row] or [[]]
    if len(head) < 2 or head[0].strip().lower() != "file":
        raise DatasetError(f"{table}: the first line is `file`, then the names of numbers")
    columns = [_column(name, table, runtime) for name in head[1:]]
    images, names, values = [], [], []
    for line, row in enumerate(rows, 2):
        try:
            values.append([float(value) for value in row[1:]])
            images.append(fit_picture(runtime.bundle.manifest, folder / row[0]).image)
        except (OSError, ValueError) as error:
            raise DatasetError(f"{table}, line {line}: {error}") from error
        if len(row) != len(head) or not np.isfinite(values[-1]).all():
            raise DatasetError(f"{table}, line {line}: {len(head) - 1} numbers follow the file")
        names.append((folder / row[0]).parent.name)
    if not rows:
        raise DatasetError(f"{table} has no rows")
    presence, poses = encode(runtime, np.stack(images))
    classes = runtime.bundle.manifest.class_names
    labels = [
        classes.index(name) if name in classes else seen
        for name, seen in zip(names, presence.argmax(axis=1).tolist(), strict=True)
    ]
    return columns, Shown(poses, np.array(labels)[:, None], np.array(values)[:, None])


def _read_again(
    runtime: Runtime, label: int, weights: Doubles, intercepts: Doubles, poses: Doubles
) -> Doubles:
    """Read values (N, F) from the poses of drawings of poses (N, D)."""
    again = encode(runtime, decode_class(runtime, poses, label)).poses[:, label]
    return again.astype(np.float64) @ weights + intercepts


def _column(head: str, table: Path, runtime: Runtime) -> Measure:
    found = _COLUMN.fullmatch(head.strip())
    if found is None:
        raise DatasetError(f"{table}: {head!r} is no name of a column: `name` or `name (unit)`")
    name = found["name"]
    taken = {one.name for one in measures_of(runtime.bundle.manifest)}
    if name in taken or name.startswith("change-"):
        raise DatasetError(f"{table}: the bundle measures {name} itself; rename the column")
    return Measure(name, found["unit"] or "")


def _describe(name: str, direction: Direction, images: int) -> str:
    reading, quality = direction.reading, direction.quality
    unit = f" {direction.unit}" if direction.unit else ""
    refused = "" if direction.offered else "; the direction is not offered"
    return (
        f"{name}, {direction.name}: read with R² {reading.r2:.2f} and a mean error of "
        f"{reading.mean_error:.3g}{unit} on {images} held-out pictures; one asked for gives "
        f"{quality.got:.2f} ± {quality.spread:.2f}{refused}"
    )
