"""One row: trained with its budget, tested once, kept as a small JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from model.bundle.atomic_file import replacing
from research.tables import SIDE_BY_SIDE, Row
from research.transforms import TRANSFORMS, transform
from training.answers import Labelled, is_wrong, measure_presence
from training.data.datasets import DATASETS, Examples, load, split_last
from training.data.pairs import (
    EPOCH_PAIRS,
    PUBLISHED_PAIRS,
    TEST_SEED,
    VALIDATION_PAIRS,
    VALIDATION_SEED,
    PairDraw,
    published_pairs,
    validation_pairs,
)
from training.device import device_name
from training.provenance import TestRead, record_read
from training.state import Plan, TrainingError
from training.statistics import design_effect
from training.trainer import Trainer

_SIDE_SEED = 2018


class Sets(NamedTuple):
    """Examples of a row's data set: to learn from, and to be tested on."""

    training: Examples
    tested: Examples


class Tested(NamedTuple):
    """Images with labels; of pairs also which two digits (N, 2) each is of."""

    examples: Labelled
    digits: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Result:
    """What one row scored, trained once."""

    row: str
    dataset: str
    seed: int
    images: int
    """Seen in training."""
    split: str
    minutes: float
    device: str
    wrong: dict[str, int] = field(default_factory=dict)
    """Wrong answers by test set."""
    tested: dict[str, int] = field(default_factory=dict)
    """All answers by test set."""
    which: dict[str, list[int]] = field(default_factory=dict)
    """By test set, the indices of the images that were answered wrongly; none of older results."""
    design: dict[str, float] = field(default_factory=dict)
    """By test set of pairs: see `training.statistics.design_effect`."""

    @property
    def key(self) -> str:
        """Tells it from all others; the name of its file."""
        return result_key(self.row, seed=self.seed, images=self.images, split=self.split)

    def percent(self, test: str) -> float:
        """The error on a test set."""
        return 100 * self.wrong[test] / self.tested[test]

    def save(self, directory: Path) -> None:
        """Write `<key>.json` in one step."""
        with replacing(directory / f"{self.key}.json") as file:
            file.write(f"{json.dumps(asdict(self))}\n".encode())


def result_key(row: str, *, seed: int, images: int, split: str) -> str:
    """Row, seed and budget; and the split where it is not the test split."""
    return f"{row}-seed{seed}-{images}{'' if split == 'test' else f'-{split}'}"


def read_results(path: Path) -> list[Result]:
    """Of a folder of files, or of a file that `write_results` wrote; none where there is nothing.

    Raises:
        TrainingError: a file is not such a one.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path] if path.exists() else []
    results: list[Result] = []
    for file in files:
        try:
            values = json.loads(file.read_text())
            results += [Result(**one) for one in (values if isinstance(values, list) else [values])]
        except (ValueError, TypeError) as error:
            raise TrainingError(f"{file} does not hold results of rows: {error}") from error
    return results


def write_results(results: Iterable[Result], path: Path) -> None:
    """One file of all results, each on a line, in the order given."""
    lines = ",\n".join(json.dumps(asdict(result)) for result in results)
    path.write_text(f"[\n{lines}\n]\n")


def load_sets(row: Row, data_dir: Path) -> Sets:
    """Images of the row's data set; the test split is read only for rows that are tested on it."""
    dataset = DATASETS[row.recipe.dataset]
    training = load(dataset, "train", data_dir)
    kept, validation = split_last(training, dataset.held_out_count)
    if row.split == "validation":
        return Sets(kept, validation)
    return Sets(kept if row.hold_out else training, load(dataset, "test", data_dir))


def make_plan(row: Row, *, seed: int, training: Examples, directory: Path) -> Plan:
    """The run of a row: its images, chosen by the seed, for as long as its budget lasts."""
    if row.training_images is not None:
        training = choose(training, row.training_images, seed=seed)
    epoch = EPOCH_PAIRS if row.recipe.task == "pairs" else len(training.labels)
    recipe = replace(row.recipe, name=row.name, epochs=row.images / epoch)
    key = result_key(row.name, seed=seed, images=row.images, split=row.split)
    return Plan(recipe, seed, training, None, directory / key)


def run_row(
    row: Row,
    *,
    seed: int,
    sets: Sets,
    directory: Path,
    bundles: Path,
    device: torch.device,
    max_minutes: float = math.inf,
) -> Result | None:
    """Train and test a row, or go on with it where it was stopped.

    The result is saved in `directory`, where each row's run, with its weights, has a folder. A read
    of the test split goes into the record in the folder of the bundles.

    Returns:
        the result; None if training was stopped.
    """
    plan = make_plan(row, seed=seed, training=sets.training, directory=directory)
    with plan.locked():
        trainer = Trainer(plan, device=device, resume=plan.checkpoint_path.exists())
        if not trainer.run(max_minutes=max_minutes):
            return None
        minutes, where = round(trainer.state.run.seconds / 60, 1), device_name(device)
        result = Result(row.name, row.recipe.dataset, seed, row.images, row.split, minutes, where)
        for name, (tested, digits) in make_test_sets(row, sets.tested):
            presence = measure_presence(trainer.state.result, tested.images, device)
            wrong = is_wrong(presence, tested.labels)
            result.which[name] = np.flatnonzero(wrong).tolist()
            result.wrong[name], result.tested[name] = int(wrong.sum()), len(wrong)
            if digits is not None:
                result.design[name] = round(design_effect(wrong, digits), 4)
        if row.split == "test":
            _record(trainer.state.run.id, result, bundles)
        result.save(directory)
        return result


def make_test_sets(row: Row, digits: Examples) -> Iterator[tuple[str, Tested]]:
    """The row's test sets by name, made one at a time.

    `plain` is the split as it is, names of TRANSFORMS transform it, `side by side` makes pairs of
    it, and `shift 4` overlapping pairs that are moved by up to so many pixels.

    Raises:
        training.data.datasets.DatasetError: pairs of test digits are not the published ones.
    """
    for name in row.tests:
        if name == "plain":
            yield name, Tested(digits)
        elif name == SIDE_BY_SIDE:
            yield name, side_by_side(digits)
        elif name in TRANSFORMS:
            yield name, Tested(transform(digits, TRANSFORMS[name]))
        else:
            shift_px = int(name.removeprefix("shift "))
            make, count, seed = published_pairs, PUBLISHED_PAIRS, TEST_SEED
            if row.split != "test":
                make, count, seed = validation_pairs, VALIDATION_PAIRS, VALIDATION_SEED
            pairs = make(digits, size=row.recipe.network.height, shift_px=shift_px)
            draws = PairDraw(digits.labels, shift_px=shift_px).draw(count, seed)
            yield name, Tested(pairs, draws[:, :2])


def side_by_side(digits: Examples) -> Tested:
    """As many pairs of digits of different classes, side by side, as there are digits.

    Random numbers are outputs of PCG64, so the same digits give the same pairs everywhere.

    Args:
        digits: images (N, C, H, W).

    Returns:
        images (N, C, H, 2 W) and labels (N, 2).
    """
    pairs = PairDraw(digits.labels, shift_px=0).draw(len(digits.labels), _SIDE_SEED)[:, :2]
    left, right = (digits.images[column] for column in pairs.T)
    return Tested(Examples(np.concatenate((left, right), axis=3), digits.labels[pairs]), pairs)


def _record(run: str, result: Result, bundles: Path) -> None:
    first, *others = result.wrong
    read = TestRead(
        run=run,
        version="",
        dataset=result.dataset,
        split=result.split,
        images=result.tested[first],
        errors=result.wrong[first],
        protocol=f"research row {result.key}: {', '.join((first, *others))}",
    )
    record_read(bundles, read)


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
