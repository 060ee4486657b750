"""What the answers of a network suggest to do next."""

from __future__ import annotations

import numpy as np
import pytest

from training.advice import advise
from training.answers import Recall


def tell(*recalls: Recall, **facts: int) -> str:
    """The advice for recalls, and for 50 training pictures of each class or other facts."""
    count = len(recalls)
    labels = np.repeat(np.arange(count), [recall.images for recall in recalls])
    answers = np.concatenate(
        [
            np.where(np.arange(recall.images) < recall.right, label, (label + 1) % count)
            for label, recall in enumerate(recalls)
        ]
    )
    names = [recall.class_name for recall in recalls]
    pictures = {name: facts.get(name, 50) for name in names}
    presence = np.eye(count, dtype=np.float32)[answers]
    return " ".join(advise(labels, presence, names, pictures=pictures, size_px=32))


@pytest.mark.parametrize(
    ("right", "images", "advised"),
    [
        ((0, 1), (1, 1), True),
        ((12, 13), (20, 20), False),
        ((12, 10), (20, 20), True),
        ((10, 14), (20, 20), True),
        ((0, 3), (1, 3), True),
    ],
)
def test_guessing_is_said_where_it_is_hardly_worse(
    right: tuple[int, int], images: tuple[int, int], *, advised: bool
) -> None:
    """Guessing is the most frequent label for all."""
    recalls = [Recall(name, *counts) for name, *counts in zip("ab", right, images, strict=True)]
    assert advised == ("hardly better than guessing" in tell(*recalls))


def test_few_pictures_need_more_of_them_not_more_pixels() -> None:
    """Of the worst class first; a larger size is for many pictures."""
    few = tell(Recall("cat", 8, 10), Recall("dog", 9, 10))
    assert "Add pictures of each class, of cat first" in few
    assert "A larger --size rarely helps so few" in few
    many = tell(Recall("cat", 8, 10), Recall("dog", 9, 10), cat=900, dog=800)
    assert "try a --size above 32" in many
    assert "Add pictures" not in many


def test_the_rarest_class_comes_first() -> None:
    """Where it has less than half as many pictures as the largest one."""
    told = tell(Recall("cat", 8, 10), Recall("dog", 9, 10), cat=900, dog=12)
    assert "Add pictures of dog first: it has 12 training pictures" in told


def test_a_network_with_few_errors_is_ready() -> None:
    """On enough pictures; what to watch is said, and no more pictures are asked for."""
    told = tell(Recall("cat", 124, 125), Recall("dog", 124, 124))
    assert told.startswith("Ready to be used: 1 of 249 wrong. Watch pictures of other cameras")
    assert "Add pictures" not in told
    assert "Ready" not in tell(Recall("cat", 24, 24), Recall("dog", 24, 24))
    assert "Ready" not in tell(Recall("cat", 115, 125), Recall("dog", 124, 124))
