"""Test scores of a bundle, whatever it is for: how they are taken, recorded and shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.table import Table

from model.bundle import Bundle
from model.runtime import Runtime
from training.data.datasets import DATASETS, Examples, load
from training.data.pairs import TEST_DIGESTS, published_pairs
from training.evaluation.digit_scores import score_digits
from training.evaluation.pair_scores import PairScores, score_pairs
from training.evaluation.wrong_answers import WrongAnswers
from training.paper import MULTIMNIST_SHIFT_PX


class Scores(Protocol):
    """What can be done with any bundle's scores."""

    @property
    def wrong(self) -> WrongAnswers:
        """What was answered wrongly, of a pair at the paper's shift."""
        ...

    def metrics(self) -> dict[str, Any]:
        """For the manifest, with the protocol that gave them."""
        ...

    def headline(self) -> str:
        """The score in a sentence, beside the paper's if it has one."""
        ...

    def table(self, class_names: Sequence[str]) -> Table:
        """The whole of it."""
        ...


def score(bundle: Bundle, *, data_dir: Path) -> Scores:
    """Answer the test split: one view of each image, through the files that ship.

    Raises:
        training.data.datasets.DatasetError: the pairs are not those that the docs describe.
    """
    recipe = bundle.manifest.training["recipe"]
    examples = load(DATASETS[recipe["dataset"]], "test", data_dir)
    runtime = Runtime(bundle)
    threshold = bundle.manifest.mask_threshold
    if threshold is None:
        return score_digits(runtime, examples)
    return _score_shifts(runtime, examples, mask_threshold=threshold)


def _score_shifts(runtime: Runtime, digits: Examples, *, mask_threshold: float) -> PairScores:
    size = runtime.bundle.manifest.image_size
    scored = {
        shift_px: score_pairs(
            runtime,
            published_pairs(digits, size=size, shift_px=shift_px),
            mask_threshold=mask_threshold,
        )
        for shift_px in TEST_DIGESTS
    }
    shifts = {shift_px: scores for shift_px, (scores, _) in scored.items()}
    return PairScores(shifts, mask_threshold, scored[MULTIMNIST_SHIFT_PX][1])
