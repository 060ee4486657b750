"""Training a row of the table and testing it once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from training.datasets import HELD_OUT, Examples, choose, hold_out
from training.evaluation import Labelled, error_percent
from training.pairs import EPOCH_PAIRS, published_pairs, validation_pairs
from training.plan import Plan
from training.table.results import Result, result_key
from training.table.rows import Row
from training.trainer import Trainer
from training.transforms import TRANSFORMS, digest, transform


class Digits(NamedTuple):
    """What rows learn from and what they are tested on."""

    training: Examples
    tested: Examples
    split: Literal["test", "validation"]


def without_test_split(training: Examples) -> Digits:
    """Held-out training digits in the place of the test split: for trying rows."""
    return Digits(*hold_out(training, HELD_OUT), split="validation")


def run_row(
    row: Row,
    *,
    seed: int,
    digits: Digits,
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
    plan = make_plan(row, seed=seed, digits=digits, directory=directory)
    trainer = Trainer(plan, device=device, resume=plan.checkpoint_path.exists())
    if not trainer.run(max_minutes=max_minutes):
        return None
    errors, digests = {}, {}
    for name, tested in make_test_sets(row, digits):
        errors[name] = round(error_percent(trainer.state.result, tested, device=device), 4)
        if isinstance(tested, Examples) and tested is not digits.tested:
            digests[name] = digest(tested)
    result = Result(
        row=row.name,
        seed=seed,
        images=row.images,
        split=digits.split,
        errors=errors,
        digests=digests,
        minutes=round(trainer.state.seconds / 60, 1),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        command=_command(plan, row, split=digits.split),
    )
    result.save(directory)
    plan.checkpoint_path.unlink()
    return result


def make_plan(row: Row, *, seed: int, digits: Digits, directory: Path) -> Plan:
    """The run of a row: its images, chosen by the seed, for as long as its budget lasts."""
    training = digits.training
    if row.training_images is not None:
        training = choose(training, row.training_images, seed=seed)
    epoch = EPOCH_PAIRS if row.recipe.task == "pairs" else len(training.labels)
    recipe = replace(row.recipe, name=row.name, epochs=row.images / epoch)
    key = result_key(row.name, seed=seed, images=row.images, split=digits.split)
    return Plan(recipe, seed, training, None, directory / key)


def make_test_sets(row: Row, digits: Digits) -> Iterator[tuple[str, Labelled]]:
    """The row's test sets by name, made one at a time.

    Raises:
        training.datasets.DatasetError: pairs of test digits are not the published ones.
    """
    size = row.recipe.network.image_size
    make_pairs = published_pairs if digits.split == "test" else validation_pairs
    for name in row.tests:
        if name == "plain":
            yield name, digits.tested
        elif name in TRANSFORMS:
            yield name, transform(digits.tested, TRANSFORMS[name])
        else:
            shift_px = int(name.removeprefix("shift "))
            yield name, make_pairs(digits.tested, size=size, shift_px=shift_px)


def _command(plan: Plan, row: Row, *, split: str) -> str:
    options = f"--rows {row.name} --seeds {plan.seed} --budget {row.images}"
    return f"python -m training table run {options}{'' if split == 'test' else ' --validation'}"
