from __future__ import annotations

import numpy as np
import pytest

from model.interpret.masks import INK, colour, explain_away, find_masks, share_ink


def test_a_mask_needs_ink_and_a_bright_reconstruction() -> None:
    """Neither the picture's ink nor the reconstruction alone makes a pixel the digit's."""
    image = np.array([[1.0, 1.0, 0.0, INK]], np.float32)
    drawn = np.array([[[0.9, 0.1, 0.9, 0.4]], [[0.4, 0.3, 0.0, 0.0]]], np.float32)
    masks = find_masks(image, drawn, threshold=0.4)
    assert [[[True, False, False, True]], [[True, False, False, False]]] == masks.tolist()


def test_masks_of_many_images() -> None:
    """(N, H, W) and (N, M, H, W) give what each image gives alone."""
    rng = np.random.default_rng(0)
    images, drawn = rng.random((3, 5, 5)), rng.random((3, 2, 5, 5))
    expected = [find_masks(*one, threshold=0.5) for one in zip(images, drawn, strict=True)]
    np.testing.assert_array_equal(expected, find_masks(images, drawn, threshold=0.5))


def test_shares_are_of_ink_not_of_pixels() -> None:
    """A bright pixel weighs more; pixels too faint to be ink weigh nothing."""
    image = np.array([[1.0, 0.5, 0.5, 0.05]], np.float32)
    masks = np.array([[[1, 0, 0, 0]], [[1, 1, 0, 0]], [[0, 0, 0, 0]]], bool)
    assert [0.5, 0.75, 0.0] == share_ink(image, masks).tolist()


def test_an_empty_image_has_no_shares() -> None:
    """Nothing is divided by nothing."""
    assert [0.0, 0.0] == share_ink(np.zeros((2, 2), np.float32), np.ones((2, 2, 2), bool)).tolist()


def test_a_digit_needs_ink_of_its_own() -> None:
    """What earlier masks explain counts no more; a twentieth of the ink is enough."""
    image = np.ones((1, 20), np.float32)
    first, within, more = np.zeros((3, 1, 20), bool)
    first[:, :10], within[:, 2:8], more[:, 5:11] = True, True, True
    assert [0, 2] == explain_away(image, np.array([first, within, more]))
    assert [0] == explain_away(image, np.array([first, within]))
    assert [] == explain_away(np.zeros((1, 20), np.float32), np.array([first, more]))


def test_two_layers_are_red_and_green_and_yellow_where_they_overlap() -> None:
    """Colours are added up and stay within [0, 1]."""
    layers = np.array([[[1, 0, 1, 0]], [[0, 1, 1, 0]]], np.float32)
    red, green, both, none = colour(layers)[:, 0].T.tolist()
    assert (0, 1) == (np.argmax(red), np.argmax(green))
    assert pytest.approx([1, 1, 0.4]) == both
    assert [0, 0, 0] == none


def test_no_layers_are_black() -> None:
    """A picture without digits has a size all the same."""
    assert (3, 4, 6) == colour(np.zeros((0, 4, 6), np.float32)).shape
