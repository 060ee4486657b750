"""What a finished run tells of itself, for people who train on pictures of their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from training.data.datasets import Examples
from training.state import TrainingState

HARDLY = 0.8
"""Share of the errors of a constant answer from which a network is hardly better than that."""
_ADVICE = (
    "that is hardly better than guessing ({guess:.0f} %). Look at preview.png: can you tell the "
    "classes apart at this size? What helps, the surest first: more pictures of each class; "
    "--channels 1, if colour does not tell the classes; a larger --size, if details do; more "
    "epochs, --set epochs=..."
)


def conclude(
    state: TrainingState, held_out: Examples | None, error_percent: float | None
) -> Iterator[str]:
    """Sentences on a run that is complete, from its last error on held-out images.

    They say which weights were kept, and what to do where the network has hardly learnt anything.
    """
    if held_out is None or error_percent is None:
        return
    if best := state.best:
        error_percent = best.error_percent
        yield (
            f"kept are the weights of step {best.step:,}, the best on held-out images: "
            f"{error_percent:.2f} % validation error"
        )
    guess = 100 * (1 - np.bincount(held_out.labels).max() / len(held_out.labels))
    if error_percent >= HARDLY * guess:
        yield f"{error_percent:.2f} % validation error: {_ADVICE.format(guess=guess)}"
