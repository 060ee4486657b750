from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from training.data.datasets import DIGITS, Examples
from training.data.pairs import PairSet
from training.evaluation.wrong_answers import MOST_DRAWN, WrongAnswers, draw_wrong, find_wrong

LENGTHS = np.array([[0.1, 0.9, 0.3], [0.8, 0.2, 0.1], [0.4, 0.5, 0.6]], np.float32)
IMAGES = np.arange(3, dtype=np.uint8)[:, None, None].repeat(4, 1).repeat(4, 2)


def test_wrong_answers_carry_both_lengths() -> None:
    """The right ones are left out; each length is of the class beside it."""
    wrong = find_wrong(Examples(IMAGES, np.array([2, 0, 0], np.uint8)), LENGTHS)
    assert [0, 2] == wrong.images[:, 0, 0].tolist()
    assert ([[2], [0]], [[1], [2]]) == (wrong.labels.tolist(), wrong.answers.tolist())
    assert np.array([[0.3, 0.9], [0.4, 0.6]], np.float32).tolist() == wrong.lengths.tolist()


def test_of_wrong_pairs_the_shorter_length_is_kept() -> None:
    """Labels and answers are sets, in the order of classes."""
    labels = np.array([[1, 0], [1, 0], [2, 1]], np.uint8)
    wrong = find_wrong(PairSet(IMAGES, IMAGES[:, None].repeat(2, 1), labels), LENGTHS)
    assert ([[0, 1]], [[1, 2]]) == (wrong.labels.tolist(), wrong.answers.tolist())
    assert np.array([[0.1, 0.3]], np.float32).tolist() == wrong.lengths.tolist()


def test_nothing_wrong_is_found_where_all_is_right() -> None:
    """The arrays are empty and keep their shapes."""
    wrong = find_wrong(Examples(IMAGES, np.array([1, 0, 2], np.uint8)), LENGTHS)
    assert [(0, 4, 4), (0, 1), (0, 1), (0, 2)] == [array.shape for array in wrong]


@pytest.mark.parametrize("count", [1, 7, MOST_DRAWN + 1])
def test_every_wrong_image_is_drawn(count: int, tmp_path: Path) -> None:
    """Twice as large, up to so many, in a small file of few colours."""
    rng = np.random.default_rng(0)
    labels, answers = np.zeros((count, 1), np.int64), np.ones((count, 1), np.int64)
    images = np.full((count, 28, 28), 90, np.uint8)
    lengths = rng.random((count, 2), np.float32)
    draw_wrong(WrongAnswers(images, labels, answers, lengths), DIGITS, tmp_path / "wrong.png")
    with Image.open(tmp_path / "wrong.png") as picture:
        assert "P" == picture.mode
        level = np.asarray(picture.convert("RGB"))
    drawn = int((np.abs(level.astype(int) - 90) < 5).all(axis=2).sum())
    assert min(count, MOST_DRAWN) == round(drawn / 56**2)
