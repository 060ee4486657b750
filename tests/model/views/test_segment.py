from __future__ import annotations

import numpy as np
import pytest

from model.preprocess import Floats
from model.views.segment import EXPLAINED, find_present

IMAGE = np.zeros((4, 20), np.float32)
IMAGE[1, :10] = IMAGE[2, 10:] = 1


def strokes(*columns: slice) -> Floats:
    """The parts of the image in some columns, each drawn alone."""
    drawn = np.zeros((len(columns), *IMAGE.shape), np.float32)
    for one, some in zip(drawn, columns, strict=True):
        one[:, some] = IMAGE[:, some]
    return drawn


def find(lengths: list[float], drawn: Floats) -> list[int]:
    """Labels that `count=auto` finds, of classes in order."""
    return find_present(IMAGE, np.array(lengths), drawn)


def test_what_explains_nothing_more_is_left_out() -> None:
    """A capsule may owe its length to strokes that a longer one explains."""
    first, within, second = slice(0, 10), slice(2, 8), slice(10, 20)
    assert [0, 2] == find([0.9, 0.8, 0.7], strokes(first, within, second))
    assert [0] == find([0.9, 0.8], strokes(first, within))


@pytest.mark.parametrize(("length", "found"), [(0.9, [0, 1]), (0.3, [0])])
def test_a_short_capsule_must_explain_more(length: float, found: list[int]) -> None:
    """Two pixels of twenty, a share of 0.1, are enough for a long capsule alone."""
    assert 0.3 * 0.1 < EXPLAINED < 0.9 * 0.1
    assert found == find([0.95, length], strokes(slice(0, 10), slice(10, 12)))


@pytest.mark.parametrize("brightness", [0.0, 0.09])
def test_an_image_without_ink_has_no_digits(brightness: float) -> None:
    """Whatever capsules say of it."""
    drawn, lengths = brightness * strokes(slice(0, 10), slice(0, 0)), np.ones(2, np.float32)
    assert [] == find_present(brightness * IMAGE, lengths, drawn)
