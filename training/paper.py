"""What the paper reports: the only copy, for `evaluate` and for the table of results."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reported:
    """An error in percent, and its standard deviation over three trainings where it is given."""

    percent: float
    deviation: float | None = None

    def __str__(self) -> str:
        spread = "" if self.deviation is None else f" ± {self.deviation:g}"
        return f"{self.percent:g}{spread}"


MNIST_BASELINE = Reported(0.39)
"""Table 1, as the next four."""
MNIST = {
    (1, "none"): Reported(0.34, 0.032),
    (1, "paper"): Reported(0.29, 0.011),
    (3, "none"): Reported(0.35, 0.036),
    (3, "paper"): Reported(0.25, 0.005),
}
"""By routing iterations and weight of the reconstruction."""
MULTIMNIST_BASELINE = Reported(8.1)
MULTIMNIST = {(1, "paper"): Reported(7.5), (3, "paper"): Reported(5.2)}
MULTIMNIST_SHIFT_PX = 4
"""Section 6."""
AFFNIST_BASELINE, AFFNIST = Reported(34), Reported(21)
"""Section 5.2: networks that were trained on 40x40 images, moved and not otherwise transformed."""
