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

from model.bundle.atomic_file import replacing
from training.answers import Labelled, is_wrong, measure_presence
from training.data.datasets import DATASETS, Examples, choose, digest, hold_out, load
from training.data.pairs import EPOCH_PAIRS, published_pairs, validation_pairs
from training.data.transforms import TRANSFORMS, transform
from training.device import device_name
from training.experiments.declare import Row
from training.experiments.seeds import SIDE_BY_SIDE, side_by_side
from training.metrics import METRICS, VALIDATION_ERROR
from training.state import Plan, TrainingError
from training.trainer import Trainer


class Sets(NamedTuple):
    """Examples of a row's data set; those held out are training images not learned from."""

    training: Examples
    held_out: Examples | None
    tested: Examples


@dataclass(frozen=True)
class Result:
    """What one row scored, trained once."""

    row: str
    dataset: str
    seed: int
    images: int
    """Seen in training."""
    split: str
    wrong: dict[str, int]
    """Wrong answers by test set; likewise, next, all answers and SHA-256 of sets that were made."""
    tested: dict[str, int]
    digests: dict[str, str]
    minutes: float
    device: str
    curve: list[tuple[int, float]] = field(default_factory=list)
    """Images seen, and the error on held-out training images in percent."""
    which: dict[str, list[int]] = field(default_factory=dict)
    """By test set, the indices of the images that were answered wrongly; none of older results."""

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
    found = []
    for file in files:
        try:
            values = json.loads(file.read_text())
            for one in values if isinstance(values, list) else [values]:
                curve = [(images, error) for images, error in one["curve"]]
                found.append(Result(**{**one, "curve": curve}))
        except (ValueError, TypeError, KeyError) as error:
            raise TrainingError(f"{file} does not hold results of rows: {error}") from error
    return found


def write_results(results: Iterable[Result], path: Path) -> None:
    """One file of all results, each on a line, in the order given."""
    lines = ",\n".join(json.dumps(asdict(one)) for one in results)
    path.write_text(f"[\n{lines}\n]\n")


def load_sets(row: Row, data_dir: Path) -> Sets:
    """Images of the row's data set; the test split is read only for rows that are tested on it."""
    dataset = DATASETS[row.recipe.dataset]
    training, held_out = load(dataset, "train", data_dir), None
    if row.curve_every or row.split == "validation":
        training, held_out = hold_out(training, dataset.held_out)
    tested = held_out if row.split == "validation" else load(dataset, "test", data_dir)
    assert tested is not None
    return Sets(training, held_out, tested)


def make_plan(row: Row, *, seed: int, sets: Sets, directory: Path) -> Plan:
    """The run of a row: its images, chosen by the seed, for as long as its budget lasts."""
    training = sets.training
    if row.training_images is not None:
        training = choose(training, row.training_images, seed=seed)
    epoch = EPOCH_PAIRS if row.recipe.task == "pairs" else len(training.labels)
    recipe = replace(row.recipe, name=row.name, epochs=row.images / epoch)
    key = result_key(row.name, seed=seed, images=row.images, split=row.split)
    held_out = sets.held_out if row.curve_every else None
    return Plan(recipe, seed, training, held_out, directory / key)


def run_row(
    row: Row,
    *,
    seed: int,
    sets: Sets,
    directory: Path,
    device: torch.device,
    max_minutes: float = math.inf,
) -> Result | None:
    """Train and test a row, or go on with it where it was stopped.

    The result is saved in `directory`, where each row's run, with its weights, has a folder.

    Returns:
        the result; None if training was stopped.
    """
    plan = make_plan(row, seed=seed, sets=sets, directory=directory)
    with plan.locked():
        resume = plan.checkpoint_path.exists()
        trainer = Trainer(plan, device=device, resume=resume)
        every = max(row.curve_every // plan.recipe.batch_size, 1) if row.curve_every else None
        if not trainer.run(max_minutes=max_minutes, validate_every=every):
            return None
        wrong, counts, digests, which = {}, {}, {}, {}
        for name, tested in make_test_sets(row, sets):
            presence = measure_presence(trainer.state.result, tested.images, device)
            which[name] = np.flatnonzero(is_wrong(presence, tested.labels)).tolist()
            wrong[name] = len(which[name])
            counts[name] = len(tested.labels)
            if isinstance(tested, Examples) and tested is not sets.tested:
                digests[name] = digest(*tested)
        result = Result(
            row=row.name,
            dataset=row.recipe.dataset,
            seed=seed,
            images=row.images,
            split=row.split,
            wrong=wrong,
            tested=counts,
            digests=digests,
            minutes=round(trainer.state.run.seconds / 60, 1),
            device=device_name(device),
            curve=_read_curve(plan),
            which=which,
        )
        result.save(directory)
        return result


def make_test_sets(row: Row, sets: Sets) -> Iterator[tuple[str, Labelled]]:
    """The row's test sets by name, made one at a time.

    `plain` is the split as it is, names of TRANSFORMS transform it, `side by side` makes pairs of
    it, and `shift 4` overlapping pairs that are moved by up to so many pixels.

    Raises:
        training.data.datasets.DatasetError: pairs of test digits are not the published ones.
    """
    make_pairs = published_pairs if row.split == "test" else validation_pairs
    for name in row.tests:
        if name == "plain":
            yield name, sets.tested
        elif name == SIDE_BY_SIDE:
            yield name, side_by_side(sets.tested)
        elif name in TRANSFORMS:
            yield name, transform(sets.tested, TRANSFORMS[name])
        else:
            shift_px = int(name.removeprefix("shift "))
            size = row.recipe.network.height
            yield name, make_pairs(sets.tested, size=size, shift_px=shift_px)


def _read_curve(plan: Plan) -> list[tuple[int, float]]:
    lines = map(json.loads, (plan.directory / METRICS).read_text().splitlines())
    errors = {
        line["step"] * plan.recipe.batch_size: round(line[VALIDATION_ERROR], 4)
        for line in lines
        if VALIDATION_ERROR in line
    }
    return sorted(errors.items())
