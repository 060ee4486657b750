from __future__ import annotations

import numpy as np
import pytest

from training.data.examples import Examples, choose, hold_out

IMAGES = np.arange(30, dtype=np.uint8).reshape(5, 1, 2, 3)
LABELS = np.array([3, 1, 4, 1, 5])


@pytest.mark.parametrize("count", [0, 2, 4])
def test_the_last_examples_are_held_out(count: int) -> None:
    """Training keeps the first examples, validation gets the last `count`, none is lost."""
    training, validation = hold_out(Examples(IMAGES, LABELS), count)
    np.testing.assert_array_equal(LABELS[: 5 - count], training.labels)
    np.testing.assert_array_equal(LABELS[5 - count :], validation.labels)
    np.testing.assert_array_equal(IMAGES[: 5 - count], training.images)
    np.testing.assert_array_equal(IMAGES[5 - count :], validation.images)


@pytest.mark.parametrize("count", [5, 6])
def test_something_is_left_to_train_on(count: int) -> None:
    """Holding out everything, or more than there is, is refused."""
    with pytest.raises(ValueError, match=f"cannot hold out {count} of 5"):
        hold_out(Examples(IMAGES, LABELS), count)


def digits_of(counts: dict[int, int]) -> Examples:
    """So many images of each label; the first pixel is the image's number."""
    labels = np.repeat(list(counts), list(counts.values()))
    images = np.zeros((len(labels), 1, 2, 2), np.uint8)
    images[:, 0, 0, 0] = np.arange(len(labels))
    return Examples(images, labels)


def test_chosen_examples_are_as_many_of_each_class() -> None:
    """However many there are to choose from, and none is taken twice."""
    chosen = choose(digits_of({0: 50, 1: 20, 2: 30}), 30, seed=1)
    assert [10, 10, 10] == np.bincount(chosen.labels).tolist()
    assert 30 == len(set(chosen.images[:, 0, 0, 0].tolist()))


def test_the_seed_chooses() -> None:
    """The same ones for the same seed, others for another; fewer are among more."""
    digits = digits_of({0: 50, 1: 50})
    first, again, other, more = (
        set(choose(digits, count, seed=seed).images[:, 0, 0, 0].tolist())
        for seed, count in ((1, 20), (1, 20), (2, 20), (1, 40))
    )
    assert first == again
    assert first != other
    assert first < more


@pytest.mark.parametrize("count", [0, 7, 42])
def test_classes_share_equally_or_not_at_all(count: int) -> None:
    """An odd count, none, or more than the rarest class has is refused."""
    with pytest.raises(ValueError, match="equally"):
        choose(digits_of({0: 50, 1: 20}), count, seed=1)
