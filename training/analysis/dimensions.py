"""Measure and name the effect of each pose dimension on the decoded digit.

A dimension gets the name of the deformation that explains most of what moving it does to the
images, if it explains enough, and if the measure of that name moves with the dimension, the same
way on nearly all digits. Both must hold again, with the same sign, on digits that had no part in
choosing the name; the strength that is published is the one found there.

A measure is a moment of the ink p(x, y), x to the right and y down, in pixels. Its tangent is the
derivative of the image along the deformation that the measure is named for: with a displacement
field (u, v) it is -u dp/dx - v dp/dy (Simard et al., "Transformation Invariance in Pattern
Recognition", 1998, section 2).
"""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from model.bundle.dimensions import Deformation, PoseDimension
from model.preprocess import Floats, scale
from model.runtime import Runtime
from training.data.datasets import Examples

Doubles = NDArray[np.float64]
MEASURES: tuple[Deformation, ...] = get_args(Deformation)
"""The measures, in the order of the last axis of `measure` and `tangents`."""
DELTAS = np.array([-0.2, -0.1, 0.0, 0.1, 0.2], np.float32)
"""The changes of a sweep, inside the paper's range of 0.25. The middle is the digit itself."""
DIGITS_PER_CLASS = 50
"""The number of digits that choose a name, and of others that confirm it."""
EXPLAINED = 0.3
"""The share of the change, from -0.1 to 0.1, that a deformation must explain to give its name."""
UNANIMOUS = 0.9
"""The share of the digits on which its measure must move the same way."""
LOCAL = 0.5
"""The share of the change that must lie in one square, as wide as the digit's radius."""
INVISIBLE = 1e-3
"""The squared change, as a share of the digit's squared ink, below which nothing changes."""
_MIN_IMAGES = 8
"""The fewest digits that a name needs."""
_BATCH = 64
_TINY = 1e-12
_FAINTEST = 1e-9
"""A constant that is added to divisors: an empty image measures zero."""


class Effect(NamedTuple):
    """The effect of one dimension on N digits."""

    explained: Doubles
    """The mean share of the change that lies along each deformation's tangent, (M,)."""
    signs: Doubles
    """The mean signs of each measure's change, 1 or -1, (M,)."""
    unanimity: Doubles
    """The share of the digits whose measure moves as `signs` says, (M,)."""
    change: float
    """The mean squared change, as a share of the squared ink."""
    locality: float
    """Mean share of the change in the square that holds most of it, as wide as the digit's radius
    of gyration: about a third of its height."""

    def name(self) -> int | None:
        """The deformation, as an index of MEASURES, that may give its name."""
        fit = (
            (self.explained >= EXPLAINED)
            & (self.unanimity >= UNANIMOUS)
            & (self.change >= INVISIBLE)
        )
        return int(np.argmax(np.where(fit, self.explained, -1))) if fit.any() else None

    @property
    def localised(self) -> bool:
        """Whether the image changes, and in one part alone."""
        return self.change >= INVISIBLE and self.locality >= LOCAL


def name_dimensions(runtime: Runtime, digits: Examples) -> tuple[PoseDimension, ...]:
    """Name every dimension of every class of which there are enough digits.

    Args:
        runtime: of a network for images of one channel, light on dark.
        digits: the first of each class name, the next confirm.
    """
    found = []
    for label in range(runtime.bundle.manifest.num_classes):
        images = digits.images[digits.labels == label][: 2 * DIGITS_PER_CLASS]
        if len(images) < 2 * _MIN_IMAGES:
            continue
        middle = len(images) // 2
        naming, confirming = (
            decode_sweeps(runtime, images[part], label)
            for part in (slice(middle), slice(middle, None))
        )
        found += [
            name_dimension(naming[:, dim], confirming[:, dim], label=label, dim=dim)
            for dim in range(naming.shape[1])
        ]
    return tuple(found)


def name_dimension(naming: Floats, confirming: Floats, *, label: int, dim: int) -> PoseDimension:
    """Name one dimension from sweeps of two disjoint sets of digits.

    Args:
        naming: (N, S, H, W), the sweeps over DELTAS on which the name is chosen.
        confirming: the same of other digits.
    """
    first, second = examine(naming), examine(confirming)
    choice = first.name()
    if choice is not None and choice == second.name():
        sign = int(second.signs[choice])
        if sign == first.signs[choice]:
            strength = round(float(second.explained[choice]), 3)
            return PoseDimension(label, dim, MEASURES[choice], sign, strength)
    if choice is None and first.localised and second.localised:
        return PoseDimension(label, dim, "localised", strength=round(second.locality, 3))
    return PoseDimension(label, dim, "none")


def examine(sweeps: Floats) -> Effect:
    """The effect of a dimension on digits.

    The change of an image p is its central difference q = p(0.1) - p(-0.1). A tangent t explains
    <q, t>^2 / (|q|^2 |t|^2) of it. The measures' slopes over the whole sweep are least-squares.

    Args:
        sweeps: (N, S, H, W), S images of each digit, over DELTAS.
    """
    middle = len(DELTAS) // 2
    digit = sweeps[:, middle].astype(np.float64)  # (N, H, W)
    change = sweeps[:, middle + 1].astype(np.float64) - sweeps[:, middle - 1]
    projected = project(change[:, None], tangents(digit))
    explained, along = (part[..., 0] for part in projected)  # (N, M) each
    power = np.square(change).sum(axis=(1, 2))  # (N,)
    centred = DELTAS - DELTAS.mean()
    slopes = np.einsum("s,nsm->nm", centred, measure(sweeps)) / np.square(centred).sum()
    signs = np.where(along.sum(axis=0) >= 0, 1.0, -1.0)
    locality = [_locality(*pair) for pair in zip(np.square(change), digit, strict=True)]
    return Effect(
        explained=explained.mean(axis=0),
        signs=signs,
        unanimity=(np.sign(slopes) == signs).mean(axis=0),
        change=float((power / (np.square(digit).sum(axis=(1, 2)) + _TINY)).mean()),
        locality=float(np.mean(locality)),
    )


def project(changes: Doubles, directions: Doubles) -> tuple[Doubles, Doubles]:
    """The shares of changes q that lie along directions t, and the products <q, t> themselves.

    Args:
        changes: (N, D, ...), D changes of each image.
        directions: (N, M, ...), M directions of each image.

    Returns:
        (N, M, D) each.
    """
    q, t = (images.reshape(*images.shape[:2], -1) for images in (changes, directions))
    along = np.einsum("ndp,nmp->nmd", q, t)
    power = np.square(t).sum(axis=2)[:, :, None] * np.square(q).sum(axis=2)[:, None]
    return np.square(along) / (power + _TINY), along


def encode_class(runtime: Runtime, images: NDArray[np.uint8], label: int) -> Floats:
    """Encode images (N, C, H, W) in batches; return the poses (N, D) of a class."""
    batches = (images[start : start + _BATCH] for start in range(0, len(images), _BATCH))
    return np.concatenate([runtime.encode(scale(batch)).poses[:, label] for batch in batches])


def decode_sweeps(runtime: Runtime, images: NDArray[np.uint8], label: int) -> Floats:
    """Decode the poses of digits (N, 1, H, W) of one class, changed in every dimension.

    Returns:
        (N, D, S, H, W).
    """
    poses = encode_class(runtime, images, label)
    count, dims = poses.shape
    moves = np.eye(dims, dtype=np.float32)[:, None] * DELTAS[:, None]  # (D, S, D)
    moved = (poses[:, None, None] + moves).reshape(count, -1, dims)
    classes = np.full(moved.shape[1], label, np.int64)
    drawn = np.stack([runtime.decode(poses, classes)[:, 0] for poses in moved])
    return drawn.reshape(count, dims, len(DELTAS), *drawn.shape[-2:])


def _locality(power: Doubles, digit: Doubles) -> float:
    """Largest share of power (H, W) in a square as wide as the radius of a digit (H, W)."""
    side = min(max(1, round(_radius(digit))), *power.shape)
    sums = np.pad(power.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    squares = sums[side:, side:] - sums[:-side, side:] - sums[side:, :-side] + sums[:-side, :-side]
    return float(squares.max() / (sums[-1, -1] + _TINY))


def _radius(digit: Doubles) -> float:
    """Root mean squared distance of ink (H, W) from its centre of mass."""
    y, x = np.indices(digit.shape)
    total = digit.sum() + _TINY
    across, down = (digit * x).sum() / total, (digit * y).sum() / total
    return float(np.sqrt((digit * ((x - across) ** 2 + (y - down) ** 2)).sum() / total))


def measure(images: NDArray[np.floating]) -> Doubles:
    """Compute all measures of images (..., H, W) in [0, 1], as (..., 7).

    With mass m = sum p and central moments mu (Hu, 1962):

    - thickness: 2 m / sum |grad p|, the width of a long stroke (its area by half its outline, which
      the coarea formula counts over all grey levels);
    - area: m;
    - slant: -mu_11 / mu_02, columns to the right by each row upwards;
    - width: 2 sqrt((mu_20 - mu_11^2 / mu_02) / m), of the upright digit;
    - height: 2 sqrt(mu_02 / m);
    - horizontal and vertical shift: the centre of mass.
    """
    ink = np.asarray(images, np.float64)
    x, y = _coordinates(ink)
    area = ink.sum(axis=(-2, -1))
    mass = area + _FAINTEST
    across, down = (ink * x).sum(axis=(-2, -1)) / mass, (ink * y).sum(axis=(-2, -1)) / mass
    dx, dy = x - across[..., None, None], y - down[..., None, None]
    mu20, mu11, mu02 = (
        (ink * product).sum(axis=(-2, -1)) / mass for product in (dx * dx, dx * dy, dy * dy)
    )
    steps = (np.diff(ink, axis=axis, append=0) for axis in (-2, -1))
    outline = np.hypot(*steps).sum(axis=(-2, -1))
    shear = mu11 / (mu02 + _FAINTEST)
    return np.stack(
        [
            2 * area / (outline + _FAINTEST),
            area,
            -shear,
            2 * np.sqrt(np.maximum(mu20 - shear * mu11, 0)),
            2 * np.sqrt(mu02),
            across,
            down,
        ],
        axis=-1,
    )


def tangents(images: NDArray[np.floating]) -> Doubles:
    """Compute the derivatives of images (..., H, W) along the deformations: (..., 7, H, W)."""
    ink = np.asarray(images, np.float64)
    x, y = _coordinates(ink)
    mass = ink.sum(axis=(-2, -1), keepdims=True) + _FAINTEST
    dx = x - (ink * x).sum(axis=(-2, -1), keepdims=True) / mass
    dy = y - (ink * y).sum(axis=(-2, -1), keepdims=True) / mass
    along_x, along_y = np.gradient(ink, axis=(-1, -2))
    return np.stack(
        [
            np.hypot(along_x, along_y),
            ink,
            dy * along_x,
            -dx * along_x,
            -dy * along_y,
            -along_x,
            -along_y,
        ],
        axis=-3,
    )


def _coordinates(ink: Doubles) -> tuple[Doubles, Doubles]:
    height, width = ink.shape[-2:]
    return np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64)[:, None]
