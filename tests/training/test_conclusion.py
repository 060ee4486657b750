"""What a finished run tells."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from training.__main__ import conclude
from training.data.datasets import Examples
from training.state import Best


def tell(
    errors: float | None, *, best: Best | None, labels: list[int] | None, task: str = "single"
) -> str:
    """What is told of a last error, the best weights, and held-out images of these labels."""
    state: Any = SimpleNamespace(best=best, run=SimpleNamespace(task=task))
    images = np.zeros((len(labels or ()), 1, 1, 1), np.uint8)
    validation = None if labels is None else Examples(images, np.array(labels))
    return " ".join(conclude(state, validation, errors))


@pytest.mark.parametrize(
    ("labels", "error", "advised"),
    [
        ([0, 1], 50, True),
        ([0, 1], 40, True),
        ([0, 1], 39, False),
        ([0, 0, 0, 1], 25, True),
        (list(range(20)), 76, True),
        (list(range(20)), 75, False),
    ],
)
def test_advice_is_given_where_guessing_is_hardly_worse(
    labels: list[int], error: float, *, advised: bool
) -> None:
    """Guessing is the most frequent label for all."""
    assert advised == ("hardly better than guessing" in tell(error, best=None, labels=labels))


def test_guessing_of_pairs_is_not_compared() -> None:
    """A constant pair is wrong far more often than a constant digit."""
    assert not tell(90, best=None, labels=list(range(10)), task="pairs")


def test_the_best_error_counts() -> None:
    """What is kept is what is advised on."""
    told = tell(50, best=Best(0, 75, {}), labels=[0, 1])
    assert "kept are the weights of step 75, the best on held-out images: 0.00 %" in told
    assert "guessing" not in told


def test_nothing_is_told_where_nothing_is_held_out() -> None:
    """There is no error then."""
    assert not tell(None, best=None, labels=None)
    assert not tell(None, best=None, labels=[0, 1])
