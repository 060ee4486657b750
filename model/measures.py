"""Measures of an image that have a name and a unit, such as the slant of a digit in degrees.

A measure of strokes is a moment of the ink p(x, y), x to the right and y down, in pixels. With mass
m = sum p and central moments mu (Hu, "Visual pattern recognition by moment invariants", 1962):

- thickness: 2 m / sum |grad p|, the width of a long stroke (its area by half its outline, which the
  coarea formula counts over all grey levels);
- slant: arctan(-mu_11 / mu_02), positive where the top leans right;
- width: sqrt(12 (mu_20 - mu_11^2 / mu_02) / m), of the upright shape, and height:
  sqrt(12 mu_02 / m), the sides of a filled rectangle that spreads as far;
- right and down: the centre of mass, from the middle of the image.

Measures of photographs are differences of mean brightness between parts of the image, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.bundle import Manifest
from model.bundle.directions import Direction
from model.preprocess import Floats

Doubles = NDArray[np.float64]
_FAINTEST = 1e-9
"""A constant that is added to divisors: an empty image measures zero."""


class Measure(NamedTuple):
    """A measure and its words."""

    name: str
    unit: str
    """`px`, `degrees`, or empty for a share of the full brightness."""
    high: tuple[str, str] = ("", "")
    """What has much of it, and what has more than others; empty where a sentence has others."""
    low: tuple[str, str] = ("", "")
    """What has little of it, and what has less than others."""


STROKES = (
    Measure("thickness", "px", ("thick", "thicker"), ("thin", "thinner")),
    Measure("slant", "degrees"),
    Measure("width", "px", ("wide", "wider"), ("narrow", "narrower")),
    Measure("height", "px", ("tall", "taller"), ("short", "shorter")),
    Measure("right", "px"),
    Measure("down", "px"),
)
BRIGHTNESS = Measure("brightness", "", ("bright", "brighter"), ("dark", "darker"))
WARMTH = Measure("warmth", "", ("warm", "warmer"), ("cold", "colder"))
PARTS = tuple(
    Measure(
        name,
        "",
        (f"bright {where}", "brighter there"),
        (f"dark {where}", "darker there"),
    )
    for name, where in (("middle", "in the middle"), ("top", "at the top"), ("left", "on the left"))
)


def measures_of(manifest: Manifest) -> tuple[Measure, ...]:
    """The measures of the images of a network, in the order of `measure_images`."""
    if manifest.preprocess in ("digit", "pair"):
        return STROKES
    if manifest.preprocess == "stretch":
        return (*STROKES, BRIGHTNESS)
    return (BRIGHTNESS, *[WARMTH] * (manifest.channels == 3), *PARTS)


def measure_images(manifest: Manifest, images: Floats) -> Doubles:
    """Measure images (N, C, H, W) in [0, 1] by all measures of a network, as (N, F)."""
    pixels = np.asarray(images, np.float64)
    if manifest.preprocess in ("digit", "pair"):
        return _strokes(pixels[:, 0])
    if manifest.preprocess == "stretch":
        brightness = pixels.mean(axis=(1, 2, 3))[:, None]
        return np.concatenate([_strokes(pixels[:, 0]), brightness], axis=1)
    return _parts(pixels)


def measure_drawings(
    manifest: Manifest, directions: Sequence[Direction], images: Floats
) -> dict[str, Doubles]:
    """Measure what directions are named after on drawings (M, C, H, W), as (M,) by name.

    The mean by which drawings exceed their images is subtracted. Directions that no measure names
    are left out.
    """
    names = [known.name for known in measures_of(manifest)]
    measured = [direction for direction in directions if direction.name in names]
    values = measure_images(manifest, images) if measured else np.empty((0, 0))
    return {
        direction.name: values[:, names.index(direction.name)] - direction.offset
        for direction in measured
    }


def _strokes(ink: Doubles) -> Doubles:
    """The measures STROKES of images (N, H, W)."""
    height, width = ink.shape[1:]
    x = np.arange(width) - (width - 1) / 2
    y = (np.arange(height) - (height - 1) / 2)[:, None]
    area = ink.sum(axis=(1, 2))
    mass = area + _FAINTEST
    across, down = (ink * x).sum(axis=(1, 2)) / mass, (ink * y).sum(axis=(1, 2)) / mass
    dx, dy = x - across[:, None, None], y - down[:, None, None]
    mu20, mu11, mu02 = (
        (ink * product).sum(axis=(1, 2)) / mass for product in (dx * dx, dx * dy, dy * dy)
    )
    outline = np.hypot(*(np.diff(ink, axis=axis, append=0) for axis in (1, 2))).sum(axis=(1, 2))
    shear = mu11 / (mu02 + _FAINTEST)
    return np.stack(
        [
            2 * area / (outline + _FAINTEST),
            np.degrees(np.arctan(-shear)),
            np.sqrt(12 * np.maximum(mu20 - shear * mu11, 0)),
            np.sqrt(12 * mu02),
            across,
            down,
        ],
        axis=1,
    )


def _parts(pixels: Doubles) -> Doubles:
    """The measures of photographs (N, C, H, W): see `measures_of`."""
    light = pixels.mean(axis=1)  # (N, H, W)
    height, width = light.shape[1:]
    rows = slice(height // 4, height - height // 4)
    columns = slice(width // 4, width - width // 4)
    mean, inner = light.mean(axis=(1, 2)), light[:, rows, columns].mean(axis=(1, 2))
    share = light[0, rows, columns].size / light[0].size
    rim = (mean - share * inner) / (1 - share + _FAINTEST)
    top, bottom = light[:, : height // 2], light[:, -(height // 2) :]
    left, right = light[:, :, : width // 2], light[:, :, -(width // 2) :]
    warmth = [(pixels[:, 0] - pixels[:, -1]).mean(axis=(1, 2))] * (pixels.shape[1] == 3)
    halves = ((top, bottom), (left, right))
    differences = [half.mean(axis=(1, 2)) - other.mean(axis=(1, 2)) for half, other in halves]
    return np.stack([mean, *warmth, inner - rim, *differences], axis=1)
