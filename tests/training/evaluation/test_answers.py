from __future__ import annotations

import numpy as np
import pytest
import torch

from model.capsnet import CapsNet
from training.data.datasets import Examples
from training.evaluation.answers import (
    PairErrors,
    confusion,
    error_percent,
    is_wrong,
    longest,
    measure_lengths,
    pair_errors,
)

CPU = torch.device("cpu")


def test_the_answer_is_the_longest_capsule(trained: CapsNet, bars: Examples) -> None:
    """A network that knows the bars names each one's class."""
    lengths = measure_lengths(trained, bars.images, device=CPU)
    np.testing.assert_array_equal(bars.labels, longest(lengths, 1)[:, 0])


def test_answers_keep_the_order_of_many_images(trained: CapsNet, bars: Examples) -> None:
    """More images than are looked at together are answered one for one, in their order."""
    order = np.random.default_rng(0).integers(0, len(bars.labels), 501)
    lengths = measure_lengths(trained, bars.images[order], device=CPU)
    np.testing.assert_array_equal(bars.labels[order], longest(lengths, 1)[:, 0])


def test_images_are_seen_as_they_are(trained: CapsNet, bars: Examples) -> None:
    """Nothing is shifted: the network gets the pixels, divided by 255."""
    seen: list[torch.Tensor] = []
    hook = trained.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    measure_lengths(trained, bars.images, device=CPU)
    hook.remove()
    expected = torch.tensor(bars.images)[:, None].float() / 255
    torch.testing.assert_close(expected, torch.cat(seen), rtol=0, atol=0)


@pytest.mark.parametrize(("wrong", "percent"), [(0, 0.0), (6, 25.0), (24, 100.0)])
def test_the_error_is_the_share_of_wrong_answers(
    trained: CapsNet, bars: Examples, wrong: int, percent: float
) -> None:
    """Where `wrong` of 24 labels are not what the network answers, that share is the error."""
    labels = bars.labels.copy()
    labels[:wrong] = (labels[:wrong] + 1) % 3
    assert percent == error_percent(trained, Examples(bars.images, labels), device=CPU)


def test_confusion_counts_each_pair() -> None:
    """Rows are the true classes, columns the answers; pairs that recur are all counted."""
    labels = np.array([0, 0, 0, 1, 2, 2], np.uint8)
    answers = np.array([0, 0, 2, 1, 1, 2])
    assert [[2, 0, 1], [0, 1, 0], [0, 1, 1]] == confusion(labels, answers, 3).tolist()


def test_classes_that_do_not_occur_have_a_row_too() -> None:
    """The table is as large as the number of classes says."""
    assert (10, 10) == confusion(np.array([1]), np.array([1]), 10).shape


def test_the_two_longest_capsules_answer_a_pair() -> None:
    """The longest comes first."""
    lengths = np.array([[0.1, 0.9, 0.3, 0.4], [0.8, 0.2, 0.1, 0.9]], np.float32)
    assert [[1, 3], [3, 0]] == longest(lengths, 2).tolist()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param([[1, 3], [0, 3]], PairErrors(0, 0), id="in any order"),
        pytest.param([[1, 2], [0, 3]], PairErrors(50, 25), id="one digit of four missed"),
        pytest.param([[0, 2], [0, 3]], PairErrors(50, 50), id="a whole pair missed"),
        pytest.param([[1, 0], [2, 3]], PairErrors(100, 50), id="half of each pair missed"),
    ],
)
def test_errors_on_pairs(labels: list[list[int]], expected: PairErrors) -> None:
    """A pair is right where both digits are named; digits are counted apart."""
    lengths = np.array([[0.1, 0.9, 0.3, 0.4], [0.8, 0.2, 0.1, 0.9]], np.float32)
    assert expected == pair_errors(lengths, np.array(labels, np.uint8))


def test_a_pair_is_wrong_unless_both_digits_are_named() -> None:
    """The order of labels and of lengths does not matter."""
    lengths = np.array([[0.1, 0.9, 0.3, 0.4]] * 4, np.float32)
    labels = np.array([[1, 3], [3, 1], [1, 2], [0, 2]], np.uint8)
    assert [False, False, True, True] == is_wrong(lengths, labels).tolist()
