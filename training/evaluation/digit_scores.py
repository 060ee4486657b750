"""Scores on images of one digit: naming it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from model.preprocess import scale
from model.runtime import Runtime
from training.data.datasets import Examples
from training.evaluation.answers import confusion, longest
from training.evaluation.wrong_answers import WrongAnswers, find_wrong
from training.paper import MNIST, Reported

BATCH = 250
"""Images that are encoded at a time."""


@dataclass(frozen=True)
class DigitScores:
    """How one digit an image was named."""

    images: int
    errors: int
    confusion: NDArray[np.int64]
    """(K, K): row is the true class, column the answer."""
    paper: Reported | None
    """What the paper reports for this data set."""
    wrong: WrongAnswers

    @property
    def error_percent(self) -> float:
        """Wrong answers of a hundred."""
        return 100 * self.errors / self.images

    def metrics(self) -> dict[str, Any]:
        """Errors among all images of the test split."""
        return {
            "test_error_percent": round(self.error_percent, 4),
            "test_errors": self.errors,
            "test_images": self.images,
            "protocol": "the published test split through this bundle; one view of "
            "each image, one network, float32",
        }

    def headline(self) -> str:
        """Errors, and the paper's if it has some."""
        ours = f"{self.errors} of {self.images} wrong, {self.error_percent:.2f} % error"
        return ours if self.paper is None else f"{ours} (paper: {self.paper} %)"

    def table(self, class_names: Sequence[str]) -> Table:
        """The confusion."""
        table = Table("true \\ answer", *class_names)
        for true, row in zip(class_names, self.confusion, strict=True):
            table.add_row(true, *(str(count) if count else "" for count in row))
        return table


def score_digits(runtime: Runtime, examples: Examples) -> DigitScores:
    """Answer every image once, with the longest capsule."""
    lengths = np.concatenate(
        [
            runtime.encode(scale(examples.images[start : start + BATCH])).lengths
            for start in range(0, len(examples.images), BATCH)
        ]
    )
    answers = longest(lengths, 1)[:, 0]
    manifest = runtime.bundle.manifest
    counts = confusion(examples.labels, answers, manifest.num_classes)
    paper = MNIST[3, "paper"] if manifest.dataset == "mnist" else None
    errors = int(counts.sum() - np.trace(counts))
    return DigitScores(len(answers), errors, counts, paper, find_wrong(examples, lengths))
