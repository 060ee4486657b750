from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from training.analysis.moments import MEASURES, measure, tangents

Doubles = NDArray[np.float64]
Y, X = np.mgrid[0:28, 0:28].astype(float)


def ellipse(
    *,
    x: float = 13.5,
    y: float = 13.5,
    width: float = 3.0,
    height: float = 5.0,
    slant: float = 0.0,
    ink: float = 1.0,
) -> Doubles:
    """A Gaussian spot; `slant` moves columns to the right by row upwards."""
    across = X - x + slant * (Y - y)
    return ink * np.exp(-(across**2) / (2 * width**2) - (Y - y) ** 2 / (2 * height**2))


def stroke(width: float, *, ink: float = 1.0, softness: float = 0.2) -> Doubles:
    """A long upright stroke."""
    left, right = X - 13.5 + width / 2, 13.5 + width / 2 - X
    return ink / (1 + np.exp(-left / softness)) / (1 + np.exp(-right / softness))


def measured(picture: Doubles, name: str) -> float:
    return float(measure(picture)[MEASURES.index(name)])


def test_moments_of_a_known_spot() -> None:
    """A Gaussian has its own standard deviations, shear, mass and place."""
    spot = ellipse(x=12.25, y=14.5, width=2.0, height=3.0, slant=0.3, ink=0.5)
    expected = {
        "area": 0.5 * 2 * np.pi * 2.0 * 3.0,
        "slant": 0.3,
        "width": 4.0,
        "height": 6.0,
        "horizontal shift": 12.25,
        "vertical shift": 14.5,
    }
    for name, value in expected.items():
        assert value == pytest.approx(measured(spot, name), rel=2e-3), name


@pytest.mark.parametrize("width", [2.0, 3.0, 4.0])
def test_thickness_is_a_long_stroke_s_width(width: float) -> None:
    """In pixels, and of faint strokes as of strong ones."""
    assert width == pytest.approx(measured(stroke(width), "thickness"), rel=0.1)
    faint = measured(stroke(width, ink=0.4), "thickness")
    assert measured(stroke(width), "thickness") == pytest.approx(faint)


def test_an_empty_picture_measures_nothing() -> None:
    """Zeros, and no division by zero."""
    assert np.array_equal(np.zeros(7), measure(np.zeros((28, 28))))


def test_measures_take_any_leading_axes() -> None:
    """Pictures are measured one by one, however they are stacked."""
    stack = np.stack([ellipse(x=11), ellipse(ink=0.3), stroke(3)]).reshape(3, 1, 28, 28)
    assert (3, 1, 7) == measure(stack).shape
    assert np.allclose(measure(ellipse(ink=0.3)), measure(stack)[1, 0])


@pytest.mark.parametrize(
    ("name", "less", "more"),
    [
        ("area", ellipse(ink=0.95), ellipse(ink=1.05)),
        ("slant", ellipse(slant=-0.02), ellipse(slant=0.02)),
        ("width", ellipse(width=2.95), ellipse(width=3.05)),
        ("height", ellipse(height=4.95), ellipse(height=5.05)),
        ("horizontal shift", ellipse(x=13.4), ellipse(x=13.6)),
        ("vertical shift", ellipse(y=13.4), ellipse(y=13.6)),
        ("thickness", stroke(2.9, softness=0.5), stroke(3.1, softness=0.5)),
    ],
)
def test_a_tangent_is_the_deformation_s_beginning(name: str, less: Doubles, more: Doubles) -> None:
    """A small deformation lies along its own tangent, and its measure grows with it."""
    tangent = tangents((less + more) / 2)[MEASURES.index(name)]
    change = more - less
    cosine = (tangent * change).sum() / np.sqrt((tangent**2).sum() * (change**2).sum())
    assert cosine > 0.95
    assert measured(more, name) > measured(less, name)
