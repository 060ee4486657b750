"""Training a row of the table and testing it once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from training.data.datasets import DATASETS, HELD_OUT, Examples, choose, hold_out, load
from training.data.pairs import EPOCH_PAIRS, published_pairs, validation_pairs
from training.data.transforms import TRANSFORMS, digest, transform
from training.evaluation.answers import Labelled, error_percent
from training.hardware.device import device_name
from training.run.plan import Plan
from training.run.trainer import Trainer
from training.table.results import Result, result_key
from training.table.row import Row, Split


class Sets(NamedTuple):
    """What a row learns from and what it is tested on."""

    training: Examples
    tested: Examples


def load_sets(row: Row, data_dir: Path) -> Sets:
    """Images of the row's data set; the test split is read only for rows that are tested on it."""
    return _load_sets(row.recipe.dataset, row.split, data_dir)


@cache
def _load_sets(dataset: str, split: Split, data_dir: Path) -> Sets:
    training = load(DATASETS[dataset], "train", data_dir)
    if split == "validation":
        return Sets(*hold_out(training, HELD_OUT))
    return Sets(training, load(DATASETS[dataset], "test", data_dir))


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

    Args:
        directory: of the results of all rows; each row's run has a folder in it.

    Returns:
        the result, which is saved; None if training was stopped.
    """
    plan = make_plan(row, seed=seed, sets=sets, directory=directory)
    with plan.locked():
        trainer = Trainer(plan, device=device, resume=plan.checkpoint_path.exists())
        if not trainer.run(max_minutes=max_minutes):
            return None
        errors, digests = {}, {}
        for name, tested in make_test_sets(row, sets):
            errors[name] = round(error_percent(trainer.state.result, tested, device=device), 4)
            if isinstance(tested, Examples) and tested is not sets.tested:
                digests[name] = digest(tested)
        result = Result(
            row=row.name,
            seed=seed,
            images=row.images,
            split=row.split,
            errors=errors,
            digests=digests,
            minutes=round(trainer.state.seconds / 60, 1),
            device=device_name(device),
            command=_command(row, seed=seed),
        )
        result.save(directory)
        plan.checkpoint_path.unlink()
        return result


def make_plan(row: Row, *, seed: int, sets: Sets, directory: Path) -> Plan:
    """The run of a row: its images, chosen by the seed, for as long as its budget lasts."""
    training = sets.training
    if row.training_images is not None:
        training = choose(training, row.training_images, seed=seed)
    epoch = EPOCH_PAIRS if row.recipe.task == "pairs" else len(training.labels)
    recipe = replace(row.recipe, name=row.name, epochs=row.images / epoch)
    return Plan(recipe, seed, training, None, directory / row_key(row, seed=seed))


def make_test_sets(row: Row, sets: Sets) -> Iterator[tuple[str, Labelled]]:
    """The row's test sets by name, made one at a time.

    Raises:
        training.data.datasets.DatasetError: pairs of test digits are not the published ones.
    """
    size = row.recipe.network.image_size
    make_pairs = published_pairs if row.split == "test" else validation_pairs
    for name in row.tests:
        if name == "plain":
            yield name, sets.tested
        elif name in TRANSFORMS:
            yield name, transform(sets.tested, TRANSFORMS[name])
        else:
            shift_px = int(name.removeprefix("shift "))
            yield name, make_pairs(sets.tested, size=size, shift_px=shift_px)


def row_key(row: Row, *, seed: int) -> str:
    """Of the result that the row will have."""
    return result_key(row.name, seed=seed, images=row.images, split=row.split)


def _command(row: Row, *, seed: int) -> str:
    options = f"--rows {row.name} --seeds {seed} --budget {row.images}"
    return f"python -m training table run {options}{'' if row.split == 'test' else ' --validation'}"
