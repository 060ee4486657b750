from __future__ import annotations

import numpy as np
import pytest

from model.preprocess import Floats
from model.views.segment import EXPLAINED, PRESENT, candidates, segment

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
    labels = np.arange(len(drawn))
    found = segment(IMAGE, np.array(lengths), labels, drawn, threshold=0.3, count="auto")
    return found.labels.tolist()


def test_candidates_are_long_enough_or_as_many_as_asked_for() -> None:
    """The longest first; without a number, those that may be present at all."""
    lengths = np.array([0.1, PRESENT, 0.9, 0.0], np.float32)
    assert [2, 1] == candidates(lengths, "auto").tolist()
    assert [2, 1, 0] == candidates(lengths, 3).tolist()


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
    drawn, lengths = brightness * strokes(slice(0, 10), slice(0, 0)), np.ones(2)
    image, labels = brightness * IMAGE, np.arange(2)
    found = segment(image, lengths, labels, drawn, threshold=0.3, count="auto")
    assert ([], 0.0) == (found.labels.tolist(), found.explained_ink)
    assert (0, 4, 20) == found.masks.shape


def test_digits_that_are_left_out_get_no_ink() -> None:
    """Masks divide the image among those that are found."""
    drawn = strokes(slice(0, 10), slice(0, 10), slice(10, 20))
    labels = np.arange(3)
    found = segment(IMAGE, np.full(3, 0.9), labels, drawn, threshold=0.6, count="auto")
    assert [10, 10] == found.masks.sum(axis=(1, 2)).tolist()
    both = segment(IMAGE, np.full(3, 0.9), labels, drawn, threshold=0.6, count=3)
    assert [0, 0, 10] == both.masks.sum(axis=(1, 2)).tolist()


def test_reconstructions_add_up_to_white_at_most() -> None:
    """A faint second one explains what the first left, though both together would be over 1."""
    drawn = np.stack((0.75 * IMAGE, 0.5 * IMAGE))
    assert [0, 1] == find([1.0, 1.0], drawn)
