"""What became of rows: one small JSON file each while they are run, one for all in the docs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from model.atomic_file import replacing
from training.run.plan import TrainingError


@dataclass(frozen=True)
class Result:
    """The errors of one row, trained once."""

    row: str
    seed: int
    images: int
    """Seen in training."""
    split: str
    """`test`, or `validation` for held-out training digits."""
    errors: dict[str, float]
    """In percent, by test set."""
    digests: dict[str, str]
    """SHA-256 of those test sets that were made."""
    minutes: float
    device: str
    command: str

    @property
    def key(self) -> str:
        """Tells it from all others; the name of its files."""
        return result_key(self.row, seed=self.seed, images=self.images, split=self.split)

    def save(self, directory: Path) -> None:
        """Write `<key>.json` in one step."""
        with replacing(directory / f"{self.key}.json") as file:
            file.write(f"{json.dumps(asdict(self), indent=1)}\n".encode())


def result_key(row: str, *, seed: int, images: int, split: str) -> str:
    """Row, seed and budget; and the split where it is not the test split."""
    suffix = "" if split == "test" else f"-{split}"
    return f"{row}-seed{seed}-{images}{suffix}"


def read_results(path: Path) -> list[Result]:
    """Of a folder of files, or of a file that `write_results` wrote; none where there is nothing.

    Raises:
        TrainingError: a file is not such a one.
    """
    try:
        if path.is_dir():
            return [Result(**json.loads(file.read_text())) for file in sorted(path.glob("*.json"))]
        return [Result(**one) for one in json.loads(path.read_text())] if path.exists() else []
    except (ValueError, TypeError) as error:
        raise TrainingError(f"{path} does not hold results of rows: {error}") from error


def write_results(results: Iterable[Result], path: Path) -> None:
    """One file of all results, in the order given."""
    path.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")
