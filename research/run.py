"""One row: trained with its budget, tested once, kept as a small JSON file."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from model.bundle.disk import replacing
from research.rows import Row
from training.answers import is_wrong, measure_presence
from training.data.datasets import DATASETS, Examples, load, rank_in_class, split_last
from training.data.pairs import EPOCH_PAIRS
from training.provenance import TestRead, record_read
from training.state import Plan, TrainingError
from training.trainer import Trainer

_DIGITS = 12
_OFF = {"pose": "routed"}
"""Values of settings that were added later and change nothing."""


def recipe_digest(row: Row) -> str:
    """Return 12 hexadecimal digits of what a row is trained by, apart from seed and budget.

    Settings that are off (zero, empty, false or in `_OFF`) are left out. So a new setting that is
    off changes no digest.
    """
    recipe = row.recipe.to_dict()
    for decided_by_the_budget in ("name", "epochs"):
        del recipe[decided_by_the_budget]
    trained_by = {"recipe": recipe, "training_images": row.training_images}
    text = json.dumps(_without_off(trained_by), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def pack(images: list[int], count: int) -> str:
    """Pack indices of images, of `count` images, into a short text."""
    bits = np.zeros(count, bool)
    bits[images] = True
    return base64.b64encode(zlib.compress(np.packbits(bits).tobytes(), 9)).decode()


def unpack(text: str) -> list[int]:
    """Return the indices that `pack` packed.

    Raises:
        ValueError: the text is something else.
    """
    try:
        packed = zlib.decompress(base64.b64decode(text, validate=True))
    except zlib.error as error:
        raise ValueError(f"no packed images: {error}") from error
    return np.flatnonzero(np.unpackbits(np.frombuffer(packed, np.uint8))).tolist()


def _without_off(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if one and _OFF.get(key) != one}
        return {key: _without_off(one) for key, one in kept.items()}
    if isinstance(value, (list, tuple)):
        return [_without_off(one) for one in value]
    return value


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
    tested: int
    """The number of images that were tested."""
    which: tuple[int, ...]
    """The images that were answered wrongly."""
    recipe: str = ""
    """The digest of what it was trained by (`records.recipe_digest`)."""

    @property
    def key(self) -> str:
        """Tells it from all others; the name of its file."""
        return result_key(self.row, seed=self.seed, images=self.images, split=self.split)

    @property
    def percent(self) -> float:
        """The error."""
        return 100 * len(self.which) / self.tested

    def save(self, directory: Path) -> None:
        """Write `<key>.json` in one step."""
        with replacing(directory / f"{self.key}.json") as file:
            file.write(f"{json.dumps(self.to_dict())}\n".encode())

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON-ready values; the images that were answered wrongly are packed."""
        return {**asdict(self), "which": pack([*self.which], self.tested)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            TypeError, ValueError: it is something else.
        """
        return cls(**{**values, "which": tuple(unpack(values["which"]))})


def result_key(row: str, *, seed: int, images: int, split: str) -> str:
    """Row, seed and budget; and the split where it is not the test split."""
    return f"{row}-seed{seed}-{images}{'' if split == 'test' else f'-{split}'}"


def read_results(path: Path) -> list[Result]:
    """Of a folder of files, or of a file of a list of results; none where there is nothing.

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
        except (AttributeError, LookupError, ValueError, TypeError) as error:
            raise TrainingError(f"{file} does not hold results of rows: {error}") from error
    return results


class Sets(NamedTuple):
    """The images that a row learns from and is tested on."""

    training: Examples
    tested: Examples


def load_sets(row: Row, data_dir: Path) -> Sets:
    """Images of the row's data set; the test split is read only for rows that are tested on it."""
    dataset = DATASETS[row.recipe.dataset]
    training = load(dataset, "train", data_dir)
    if row.split == "validation":
        return Sets(*split_last(training, dataset.held_out_count))
    return Sets(training, load(dataset, "test", data_dir))


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
    chosen = np.sort(order[rank_in_class(examples.labels[order]) < each])
    if rest or len(chosen) != count or not each:
        raise ValueError(f"{len(classes)} classes cannot share {count} examples equally")
    return examples.at(chosen)


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
        run, tested = trainer.runs[-1], sets.tested
        presence = measure_presence(trainer.result, tested.images, device)
        result = Result(
            row=row.name,
            dataset=row.recipe.dataset,
            seed=seed,
            images=row.images,
            split=row.split,
            minutes=round(run.seconds / 60, 1),
            device=", ".join(run.devices),
            tested=len(tested.labels),
            which=tuple(np.flatnonzero(is_wrong(presence, tested.labels)).tolist()),
            recipe=recipe_digest(row),
        )
        if row.split == "test":
            read = TestRead(
                run=run.id,
                version="",
                dataset=result.dataset,
                split=result.split,
                images=result.tested,
                errors=len(result.which),
                protocol=f"research row {result.key}",
            )
            record_read(bundles, read)
        result.save(directory)
        return result
