from __future__ import annotations

import numpy as np
import pytest

from model.pairs import INK, colour, find_masks, overlay


def test_digits_divide_ink_by_their_reconstructions() -> None:
    """A pixel is of the digit that is brighter there, of both, or of none that is seen there."""
    image, drawn = np.zeros((3, 40), np.float32), np.zeros((2, 3, 40), np.float32)
    image[1] = 0.6
    image[1, 30:] = INK / 2
    drawn[0, 1, :10], drawn[1, 1, :10] = 0.9, 0.1
    drawn[:, 1, 10:20] = 0.2
    drawn[:, :, 30:] = 1
    first, second = find_masks(image, drawn, threshold=0.3)[:, 1].tolist()
    assert [True] * 20 == first[:20]
    assert [False] * 10 + [True] * 10 == second[:20]
    assert [False] * 18 == first[22:] == second[22:]  # ink without digits, digits without ink
    assert not find_masks(image, drawn, threshold=0.3)[:, [0, 2]].any()


def test_two_layers_are_red_and_green_and_yellow_where_they_overlap() -> None:
    """Colours are added up and stay within [0, 1]."""
    layers = np.array([[[1, 0, 1, 0]], [[0, 1, 1, 0]]], np.float32)
    red, green, both, none = colour(layers)[:, 0].T.tolist()
    assert (0, 1) == (np.argmax(red), np.argmax(green))
    assert pytest.approx([1, 1, 0.4]) == both
    assert [0, 0, 0] == none


@pytest.mark.parametrize("dy", [-8, -5, 0, 1, 8])
@pytest.mark.parametrize("dx", [-8, -3, 0, 5, 8])
def test_the_second_digit_lies_where_it_was_asked_for(dx: int, dy: int) -> None:
    """However far apart, both lie whole within the picture."""
    first, second = np.zeros((2, 1, 28, 28), np.float32)
    first[0, 0, 0] = first[0, -1, -1] = 0.25
    second[0, 0, 0] = second[0, -1, -1] = 0.5
    (image,) = overlay(first, second, dx=dx, dy=dy)
    corner = np.argwhere(image == 0.25).min(axis=0) if (dx or dy) else np.array([4, 4])
    other = np.argwhere(image >= 0.5).min(axis=0)
    assert (36, 36) == image.shape
    assert [dy, dx] == (other - corner).tolist()
    assert pytest.approx(1.5) == float(image.sum())
