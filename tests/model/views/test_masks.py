from __future__ import annotations

import numpy as np
import pytest

from model.views.masks import INK, colour, find_masks, share_ink, smooth


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


def test_faint_reconstructions_divide_part_of_the_ink() -> None:
    """Two that are faint together have it between them; what is almost black has none."""
    image, weak = np.ones((5, 5), np.float32), np.full((2, 5, 5), 0.01, np.float32)
    assert [0, 0] == find_masks(image, weak, threshold=0.3).sum(axis=(1, 2)).tolist()
    weak[0] = 0.06
    assert [25, 0] == find_masks(image, weak, threshold=0.3).sum(axis=(1, 2)).tolist()
    assert [25, 0] == find_masks(image, weak, threshold=0.8).sum(axis=(1, 2)).tolist()


def test_a_reconstruction_may_lie_a_little_beside_its_stroke() -> None:
    """Ink next to what is drawn is the digit's, ink further away is not."""
    image, drawn = np.zeros((9, 9), np.float32), np.zeros((1, 9, 9), np.float32)
    image[:, 3:6] = 1
    drawn[:, :, 5:7] = 0.9
    (mask,) = find_masks(image, drawn, threshold=0.25)
    assert [4, 5] == np.flatnonzero(mask[4]).tolist()


def test_shares_are_of_ink_not_of_pixels() -> None:
    """A bright pixel weighs more; pixels too faint to be ink weigh nothing."""
    image = np.array([[1.0, 0.5, 0.5, 0.05]], np.float32)
    masks = np.array([[[1, 0, 0, 0]], [[1, 1, 0, 0]], [[0, 0, 0, 0]]], bool)
    assert [0.5, 0.75, 0.0] == share_ink(image, masks).tolist()


def test_an_empty_image_has_no_shares() -> None:
    """Nothing is divided by nothing."""
    assert [0.0, 0.0] == share_ink(np.zeros((2, 2), np.float32), np.ones((2, 2, 2), bool)).tolist()


def test_a_pixel_at_the_threshold_is_ink() -> None:
    """The next darker one is none, in masks and in shares."""
    darker = np.nextafter(np.float32(INK), np.float32(0))
    image, full = np.array([[INK, darker]], np.float32), np.ones((1, 1, 2), np.float32)
    assert [[[True, False]]] == find_masks(image, full, threshold=0.3).tolist()
    only = np.array([[[True, False]], [[False, True]]])
    assert [1, 0] == share_ink(image, only).tolist()


def test_one_pixel_is_smoothed_over_its_neighbours() -> None:
    """By half along a row or column, by a quarter diagonally; nothing comes back at an edge."""
    image = np.zeros((5, 5), np.float32)
    image[1, 3] = 1
    expected = np.outer([0.25, 0.5, 0.25, 0, 0], [0, 0, 0.25, 0.5, 0.25])
    assert expected.tolist() == smooth(image).tolist()
    corner = np.zeros((2, 3), np.float32)
    corner[0, 0] = 1
    assert np.outer([0.5, 0.25], [0.5, 0.25, 0]).tolist() == smooth(corner).tolist()


def test_two_layers_are_red_and_green_and_yellow_where_they_overlap() -> None:
    """Colours are added up and stay within [0, 1]."""
    layers = np.array([[[1, 0, 1, 0]], [[0, 1, 1, 0]]], np.float32)
    red, green, both, none = colour(layers)[:, 0].T.tolist()
    assert (0, 1) == (np.argmax(red), np.argmax(green))
    assert pytest.approx([1, 1, 0.4]) == both
    assert [0, 0, 0] == none
