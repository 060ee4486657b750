"""The images that rows learn from, are stopped by and are tested on.

- `plain`: a data set as it is, or pairs of its digits.
- `azimuths`: assemblies from a third of the azimuths, tested on new assemblies from these and from
  the others (Hinton 2018, table 2).

Training may be stopped at an error (`Row.stop_percent`) on held-out images of the kind that is
learnt, so that networks are compared at equal errors there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from research.rows import FAMILIAR, NEW_AZIMUTHS, Row
from training.answers import Labelled
from training.data.assemblies import AZIMUTHS, FAMILIAR_AZIMUTHS, is_familiar, object_of
from training.data.datasets import DATASETS, Examples, load, split_last
from training.data.pairs import (
    PUBLISHED_PAIRS,
    TEST_SEED,
    VALIDATION_PAIRS,
    VALIDATION_SEED,
    PairDraw,
    published_pairs,
    validation_pairs,
)

STOP_EVERY = {"plain": 250, "azimuths": 25}
"""The steps between looks at the error, by protocol, where training is stopped at one."""


class Sets(NamedTuple):
    """Examples of a row's data set."""

    training: Examples
    tested: Examples
    stopping: Examples | None = None
    """Held-out images on whose error training is stopped, if it is."""


class Tested(NamedTuple):
    """Images with labels; of pairs also which two digits (N, 2) each is of."""

    examples: Labelled
    digits: NDArray[np.int64] | None = None


def load_sets(row: Row, data_dir: Path) -> Sets:
    """Images of the row's data set; the test split is read only for rows that are tested on it."""
    dataset = DATASETS[row.recipe.dataset]
    training = load(dataset, "train", data_dir)
    kept, validation = split_last(training, dataset.held_out_count)
    holds_out = row.hold_out or row.split == "validation" or row.stop_percent is not None
    tested = validation if row.split == "validation" else load(dataset, "test", data_dir)
    learnt = kept if holds_out else training
    if row.protocol == "azimuths":
        learnt, validation = (_familiar(one) for one in (learnt, validation))
    return Sets(learnt, tested, None if row.stop_percent is None else validation)


def make_test_sets(row: Row, tested: Examples) -> Iterator[tuple[str, Tested]]:
    """The row's test sets by name, made one at a time.

    `plain` is the split as it is, azimuths are parts of it, and `shift 4` is overlapping pairs of
    its digits that are moved by up to so many pixels.

    Raises:
        training.data.datasets.DatasetError: pairs of test digits are not the published ones.
    """
    for name in row.tests:
        if name == "plain":
            yield name, Tested(tested)
        elif name in (FAMILIAR, NEW_AZIMUTHS):
            rows = is_familiar(len(tested.labels)) == (name == FAMILIAR)
            yield name, Tested(Examples(tested.images[rows], tested.labels[rows]))
        else:
            yield name, _overlapping(row, tested, shift_px=int(name.removeprefix("shift ")))


def _overlapping(row: Row, digits: Examples, *, shift_px: int) -> Tested:
    make, count, seed = published_pairs, PUBLISHED_PAIRS, TEST_SEED
    if row.split != "test":
        make, count, seed = validation_pairs, VALIDATION_PAIRS, VALIDATION_SEED
    pairs = make(digits, size=row.recipe.network.height, shift_px=shift_px)
    draws = PairDraw(digits.labels, shift_px=shift_px).draw(count, seed)
    return Tested(pairs, draws[:, :2])


def objects_of(test: str, count: int) -> NDArray[np.int64] | None:
    """Which object each of the `count` images of a test set shows; None where each has its own."""
    if test not in (FAMILIAR, NEW_AZIMUTHS):
        return None
    share = len(FAMILIAR_AZIMUTHS) / len(AZIMUTHS)
    total = round(count / (share if test == FAMILIAR else 1 - share))
    rows = is_familiar(total) == (test == FAMILIAR)
    return np.asarray(object_of(total)[rows], np.int64)


def choose(examples: Examples, count: int, *, seed: int) -> Examples:
    """So many examples, as many of each class, in the order of the file.

    Random numbers are outputs of numpy's PCG64, which stay the same for good.

    Raises:
        ValueError: the classes cannot share them equally.
    """
    classes = np.unique(examples.labels)
    each, rest = divmod(count, len(classes))
    chances = np.random.PCG64(seed).random_raw(len(examples.labels))
    order = np.argsort(chances, kind="stable")
    rows = [order[examples.labels[order] == label][:each] for label in classes]
    chosen = np.sort(np.concatenate(rows))
    if rest or len(chosen) != count or not each:
        raise ValueError(f"{len(classes)} classes cannot share {count} examples equally")
    return Examples(examples.images[chosen], examples.labels[chosen])


def _familiar(examples: Examples) -> Examples:
    rows = is_familiar(len(examples.labels))
    return Examples(examples.images[rows], examples.labels[rows])
