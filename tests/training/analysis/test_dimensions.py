from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from model.bundle.dimensions import PoseDimension
from model.runtime import Runtime
from training.analysis.dimensions import (
    DELTAS,
    MEASURES,
    decode_sweeps,
    measure,
    name_dimension,
    name_dimensions,
    tangents,
)
from training.data.datasets import Examples

Floats = NDArray[np.float32]
Draw = Callable[[float, np.random.Generator], Floats]
Y, X = np.mgrid[0:28, 0:28].astype(float)


def draw_digit(
    rng: np.random.Generator,
    *,
    shift: tuple[float, float] = (0, 0),
    slant: float = 0,
    stretch: tuple[float, float] = (1, 1),
    grow: float = 0,
    ink: float = 1,
    dot: float = 0,
) -> Floats:
    """A seven of soft strokes, each a little different."""
    across = (X - 13.5 - shift[0] + slant * (Y - 13.5)) / stretch[0]
    down = (Y - 13.5 - shift[1]) / stretch[1]
    reach, bar, thick = rng.uniform(4, 6), rng.uniform(-8, -7), rng.uniform(1.2, 1.6) + grow
    top = np.hypot(down - bar, np.maximum(np.abs(across) - reach, 0))
    along = np.clip((down - bar) / 15, 0, 1)
    leg = np.hypot(across - reach + along * 8, np.maximum(np.abs(down - bar - 7.5) - 7.5, 0))
    picture = ink / (1 + np.exp((np.minimum(top, leg) - thick) / 0.3))
    corner = np.exp(-((across + reach) ** 2 + (down - bar - 2) ** 2) / 3)
    return np.clip(picture + dot * corner, 0, 1).astype(np.float32)


MOVES: dict[str, tuple[str, int, Callable[[float, np.random.Generator], Floats]]] = {
    "thicker": ("thickness", 1, lambda d, rng: draw_digit(rng, grow=2 * d)),
    "thinner": ("thickness", -1, lambda d, rng: draw_digit(rng, grow=-2 * d)),
    "fading": ("area", -1, lambda d, rng: draw_digit(rng, ink=0.7 - d)),
    "leaning": ("slant", 1, lambda d, rng: draw_digit(rng, slant=d)),
    "wider": ("width", 1, lambda d, rng: draw_digit(rng, stretch=(1 + d, 1))),
    "lower": ("height", -1, lambda d, rng: draw_digit(rng, stretch=(1, 1 - d))),
    "left": ("horizontal shift", -1, lambda d, rng: draw_digit(rng, shift=(-4 * d, 0))),
    "down": ("vertical shift", 1, lambda d, rng: draw_digit(rng, shift=(0, 4 * d))),
}


def sweeps(draw: Draw, *, seed: int, count: int = 12) -> Floats:
    """(N, S, H, W): each digit drawn at every delta."""
    return np.stack(
        [
            [draw(float(delta), np.random.default_rng(seed + digit)) for delta in DELTAS]
            for digit in range(count)
        ]
    )


def named(first: Draw, second: Draw | None = None) -> PoseDimension:
    second = second or first
    return name_dimension(sweeps(first, seed=0), sweeps(second, seed=100), label=7, dim=3)


@pytest.mark.parametrize("move", MOVES)
def test_a_decoder_that_moves_truly_is_named_truly(move: str) -> None:
    """Name and sign are what the synthetic decoder does, and explain most of it."""
    name, sign, draw = MOVES[move]
    found = named(draw)
    assert (7, 3, name, sign) == (found.label, found.dim, found.name, found.sign)
    assert found.strength > 0.6


def test_a_decoder_that_ignores_the_dimension_gets_no_name() -> None:
    """Nothing happens, so nothing is said."""
    assert PoseDimension(7, 3, "none") == named(lambda _, rng: draw_digit(rng))


def test_noise_gets_no_name() -> None:
    """Pictures that change at random correlate with nothing."""

    def noisy(delta: float, rng: np.random.Generator) -> Floats:
        picture = draw_digit(rng)
        own = np.random.default_rng(int(1000 * (delta + 1)) + int(1e6 * rng.random()))
        return np.clip(picture + own.normal(0, 0.2, picture.shape), 0, 1).astype(np.float32)

    assert "none" == named(noisy).name


def test_a_change_of_one_part_is_localised() -> None:
    """A dot that comes and goes in a corner is no deformation of the digit."""
    found = named(lambda d, rng: draw_digit(rng, dot=0.5 + 2 * d))
    assert ("localised", 0) == (found.name, found.sign)
    assert found.strength > 0.5


def test_a_name_that_other_digits_do_not_confirm_is_not_given() -> None:
    """The same deformation, the other way round, on the confirming digits."""
    thicker, thinner = MOVES["thicker"][2], MOVES["thinner"][2]
    assert PoseDimension(7, 3, "none") == named(thicker, thinner)


def test_another_name_on_other_digits_is_no_name() -> None:
    """What shifts some digits and fattens others has no meaning of its own."""
    assert "none" == named(MOVES["left"][2], MOVES["thicker"][2]).name


def test_digits_that_disagree_give_no_name() -> None:
    """Half of the digits lean to the right and half to the left."""

    def torn(delta: float, rng: np.random.Generator) -> Floats:
        return draw_digit(rng, slant=delta * (1 if rng.random() < 0.5 else -1))

    assert "none" == named(torn).name


def test_sweeps_are_the_decoder_s(runtime: Runtime) -> None:
    """Each picture is the digit's pose with one dimension moved."""
    images = np.random.default_rng(0).integers(0, 256, (3, 1, 28, 28), np.uint8)
    found = decode_sweeps(runtime, images, 4)
    assert (3, 16, 5, 28, 28) == found.shape
    pose = runtime.encode(images[2:] / np.float32(255)).poses[:, 4]
    pose[0, 11] += DELTAS[3]
    assert np.allclose(runtime.decode(pose, np.array([4]))[0, 0], found[2, 11, 3], atol=1e-5)


def test_classes_without_enough_digits_are_passed_over(runtime: Runtime) -> None:
    """Nothing is said of a class that cannot be named and confirmed."""
    images = np.random.default_rng(0).integers(0, 256, (20, 1, 28, 28), np.uint8)
    labels = np.array([2] * 16 + [5] * 4)
    found = name_dimensions(runtime, Examples(images, labels))
    assert [(2, dim) for dim in range(16)] == [(one.label, one.dim) for one in found]


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
