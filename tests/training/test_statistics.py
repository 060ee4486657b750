"""Intervals against what drawing images, digits and seeds anew would give."""

from __future__ import annotations

import numpy as np
import pytest

from training.statistics import interval, standard_error

DIGITS = 300


def draw_pairs(generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Which pairs of digits are wrong, and their digits: hard digits make pairs wrong."""
    hard = generator.random(DIGITS) < 0.2
    digits = generator.integers(0, DIGITS, (count, 2))
    wrong = hard[digits].any(axis=1) & (generator.random(count) < 0.9)
    return wrong.astype(float), digits


@pytest.mark.parametrize(
    ("errors", "count", "expected"),
    [
        (43, 10_000, (0.3194, 0.5787)),
        (0, 20, (0, 16.11)),
        (20, 20, (83.89, 100)),
        (1, 2, (9.45, 90.55)),
    ],
)
def test_the_interval_is_wilsons(errors: int, count: int, expected: tuple[float, float]) -> None:
    """Values as statistics packages give them; it does not leave 0 to 100 percent."""
    assert expected == pytest.approx(interval(errors, count), abs=5e-3)


def test_shared_digits_widen_by_what_drawing_digits_anew_gives() -> None:
    """The error over 400 draws of other digits and pairs is that of a single draw."""
    generator = np.random.default_rng(0)
    draws = [draw_pairs(generator, 2000) for _ in range(400)]
    scatter = float(np.std([wrong.mean() for wrong, _ in draws]))
    told = float(np.mean([standard_error(wrong, digits) for wrong, digits in draws]))
    plain = float(np.mean([standard_error(wrong) for wrong, _ in draws]))
    assert scatter == pytest.approx(told, rel=0.1)
    assert plain < 0.6 * told


def test_images_of_an_object_are_one_trial() -> None:
    """Drawing other objects gives the error that a single draw tells."""
    generator = np.random.default_rng(0)
    objects = np.arange(20).repeat(30)
    draws = [generator.beta(1, 4, 20).repeat(30) > generator.random(600) for _ in range(400)]
    scatter = float(np.std([wrong.mean() for wrong in draws]))
    told = float(np.mean([standard_error(wrong, objects) for wrong in draws]))
    assert scatter == pytest.approx(told, rel=0.1)
    assert told > 2 * standard_error(draws[0])
