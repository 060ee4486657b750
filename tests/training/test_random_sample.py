"""Samples are drawn by class and by object, whatever the order of the images."""

from __future__ import annotations

import numpy as np
import pytest

from training.random_sample import draw_rows, split_rows

LABELS = np.repeat([0, 1, 2], [60, 30, 10])
"""In the order of their classes, as in a folder."""


@pytest.mark.parametrize("count", [7, 20, 50, 100])
def test_a_sample_has_the_shares_of_the_classes(count: int) -> None:
    """To an image; without repeats."""
    rows = draw_rows(LABELS, count, seed=0)
    assert count == len(set(rows.tolist()))
    found = np.bincount(LABELS[rows], minlength=3)
    assert np.abs(found - np.array([0.6, 0.3, 0.1]) * count).max() <= 1


def test_few_images_show_many_objects() -> None:
    """Each of ten objects is seen once before any is seen twice."""
    objects = np.arange(100) // 10
    rows = draw_rows(np.zeros(100, np.int64), 15, seed=0, objects=objects)
    counts = np.bincount(objects[rows])
    assert (10, 1, 2) == (len(counts), counts.min(), counts.max())


@pytest.mark.parametrize("per_object", [1, 5])
def test_halves_share_classes_and_no_object(per_object: int) -> None:
    """Every image is in one of them."""
    objects = np.arange(100) // per_object
    one, other = split_rows(LABELS, seed=0, objects=objects)
    assert list(range(100)) == sorted([*one.tolist(), *other.tolist()])
    assert not set(objects[one]) & set(objects[other])
    counts = [np.bincount(LABELS[rows], minlength=3) for rows in (one, other)]
    assert np.abs(counts[0] - counts[1]).max() <= per_object
