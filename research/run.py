"""One row: trained with its budget, tested once, kept as a small JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from model.bundle.atomic_file import replacing
from research.protocols import STOP_EVERY, Sets, choose, make_test_sets
from research.records import code_digest, pack, recipe_digest, unpack
from research.rows import Row
from training.answers import is_wrong, measure_presence
from training.data.datasets import Examples
from training.data.pairs import EPOCH_PAIRS
from training.provenance import TestRead, record_read
from training.state import Plan, TrainingError
from training.statistics import design_effect
from training.trainer import Trainer


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
    recipe: str = ""
    """The digest of what it was trained by (`records.recipe_digest`); empty of older results."""
    code: str = ""
    """The digest of the code that trained and tested it (`records.code_digest`); likewise."""
    trained_images: int = 0
    """The images after which training was stopped, if at an error; 0 if at the budget's end."""

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
            file.write(f"{json.dumps(self.to_dict())}\n".encode())

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON-ready values; the images that were answered wrongly are packed."""
        packed = {name: pack(images, self.tested[name]) for name, images in self.which.items()}
        return {**asdict(self), "which": packed}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            TypeError, ValueError: it is something else.
        """
        which = {name: unpack(text) for name, text in values.get("which", {}).items()}
        return cls(**{**values, "which": which})


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
            listed = values if isinstance(values, list) else [values]
            results += [Result.from_dict(one) for one in listed]
        except (AttributeError, ValueError, TypeError) as error:
            raise TrainingError(f"{file} does not hold results of rows: {error}") from error
    return results


def write_results(results: Iterable[Result], path: Path) -> None:
    """One file of all results, each on a line, in the order given."""
    lines = ",\n".join(json.dumps(result.to_dict()) for result in results)
    path.write_text(f"[\n{lines}\n]\n")


def make_plan(
    row: Row,
    *,
    seed: int,
    training: Examples,
    directory: Path,
    validation: Examples | None = None,
) -> Plan:
    """The run of a row: its images, chosen by the seed, for as long as its budget lasts."""
    if row.training_images is not None:
        training = choose(training, row.training_images, seed=seed)
    epoch = EPOCH_PAIRS if row.recipe.task == "pairs" else len(training.labels)
    recipe = replace(row.recipe, name=row.name, epochs=row.images / epoch)
    key = result_key(row.name, seed=seed, images=row.images, split=row.split)
    return Plan(recipe, seed, training, validation, directory / key)


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
    plan = make_plan(
        row, seed=seed, training=sets.training, directory=directory, validation=sets.stopping
    )
    stops = row.stop_percent is not None
    with plan.locked():
        trainer = Trainer(plan, device=device, resume=plan.checkpoint_path.exists())
        done = trainer.run(
            max_minutes=max_minutes,
            validate_every=STOP_EVERY[row.protocol] if stops else None,
            stop_percent=row.stop_percent,
        )
        if not done:
            return None
        run = trainer.state.run
        result = Result(
            row=row.name,
            dataset=row.recipe.dataset,
            seed=seed,
            images=row.images,
            split=row.split,
            minutes=round(run.seconds / 60, 1),
            device=", ".join(run.devices),
            recipe=recipe_digest(row),
            code=code_digest(),
            trained_images=run.images if stops else 0,
        )
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
