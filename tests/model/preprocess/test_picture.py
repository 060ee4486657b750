from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from model.preprocess import PreprocessError, prepare, scale
from tests.model.preprocess.drawings import DIGIT, PAIR, centre_of_mass, draw_seven, draw_two


@pytest.fixture
def native() -> NDArray[np.uint8]:
    """A 28x28 picture of a seven, light on dark, off-centre."""
    return np.asarray(draw_seven(28, ink=200, ground=0))


def test_native_picture_passes_untouched(native: NDArray[np.uint8]) -> None:
    """A picture of the network's size keeps every pixel, centred or not."""
    prepared = prepare(Image.fromarray(native), DIGIT)
    assert prepared.fit == "none"
    np.testing.assert_array_equal(prepared.image, scale(native[None]))


def test_a_picture_of_two_digits_in_the_right_size_is_left_alone() -> None:
    """36x36 pictures pass untouched."""
    native = np.asarray(draw_two(300).resize((36, 36)))
    prepared = prepare(Image.fromarray(255 - native), PAIR, rule="pair")
    assert "none" == prepared.fit
    np.testing.assert_array_equal(scale(255 - native[None]), prepared.image)


def test_dark_native_picture_is_inverted(native: NDArray[np.uint8]) -> None:
    """Dark strokes on light are found by the border and turned over."""
    prepared = prepare(Image.fromarray(255 - native), DIGIT)
    assert prepared.polarity == "dark-on-light"
    np.testing.assert_allclose(prepared.image, scale(native[None]), atol=1e-6)


def test_given_polarity_wins(native: NDArray[np.uint8]) -> None:
    """An explicit polarity is obeyed where the border says otherwise."""
    prepared = prepare(Image.fromarray(native), DIGIT, polarity="dark-on-light")
    np.testing.assert_allclose(prepared.image, 1 - scale(native[None]), atol=1e-6)


@pytest.mark.parametrize("size", [(28, 28), (280, 280), (56, 28)])
def test_stretch_takes_the_whole_picture(size: tuple[int, int]) -> None:
    """Stretching keeps the strokes' place in the picture."""
    picture = draw_seven(280).resize(size)
    prepared = prepare(picture, DIGIT, fit="stretch")
    assert prepared.fit == "stretch"
    assert centre_of_mass(prepared.image[0])[1] < 10


def test_a_network_of_clothes_gets_the_whole_picture() -> None:
    """Its rule looks for no strokes: `auto` stretches pictures of another size."""
    picture = draw_seven(280)
    by_rule, asked = prepare(picture, DIGIT, rule="stretch"), prepare(picture, DIGIT, fit="stretch")
    assert "stretch" == by_rule.fit
    np.testing.assert_array_equal(asked.image, by_rule.image)


def test_fit_none_refuses_another_size() -> None:
    """The message names both sizes."""
    with pytest.raises(PreprocessError, match="28x28 pixels, not 200x200"):
        prepare(draw_seven(), DIGIT, fit="none")


def test_fit_digit_is_done_to_native_pictures_when_asked(native: NDArray[np.uint8]) -> None:
    """`fit=digit` centres a digit that came off-centre at the network's size."""
    image = prepare(Image.fromarray(native), DIGIT, fit="digit").image[0]
    assert pytest.approx(centre_of_mass(image), abs=0.7) == (13.5, 13.5)
