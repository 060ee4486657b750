"""Name pose dimensions after the known factors of rendered objects (`training.data.assemblies`).

A dimension *follows* the factor that explains most of its variance over images, if that is enough.
This does not say that moving the dimension does to the drawing what the factor does: a turn, for
example, takes a pose along a closed path, and one dimension goes along a line. A dimension is
*named* after the factor that it follows if drawings confirm it: of all factors, a change of this
one explains most of what moving the dimension does to the drawing, and it explains enough. Both
must hold on objects that were learnt and on others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from model.bundle.dimensions import DIRECTED, Factor, PoseDimension
from model.runtime import Runtime
from training.analysis.dimensions import DELTAS, Doubles, encode_class, project
from training.data.assemblies import LAMPS, Factors, render_factors
from training.data.datasets import Examples

NAMES: tuple[Factor, ...] = get_args(Factor)
FOLLOWED = 0.3
"""A dimension follows a factor that explains at least this share of its variance."""
DRAWN = 0.2
"""A change of the factor must explain at least this share of what the dimension does to the
drawing. This is about twice the mean share over all dimensions of the bundle `assemblies`."""
_COMPARED = 40
"""The number of images of a class whose drawings are compared, of learnt and of other objects."""
_STEPS: dict[Factor, float] = {"azimuth": 20, "elevation": 5, "size": 0.05, "lamp": 1}
"""Drawings change by so much of a factor, up and down."""
_BATCH = 64
_TINY = 1e-12


class Views(NamedTuple):
    """Poses of images of one class, with the factors of the images."""

    poses: Doubles
    """(N, D)."""
    factors: Factors

    def at(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Views:
        """Return some of them."""
        return Views(self.poses[rows], self.factors.at(rows))


class Effect(NamedTuple):
    """What moving each of D dimensions does to drawings, compared with each of four factors."""

    explained: Doubles
    """(4, D), the mean share of the change that lies along the change by the factor."""
    signs: Doubles
    """(4, D), 1 where the two go the same way on average, else -1."""


def name_by_factors(
    runtime: Runtime, learnt: Examples, others: Examples, known: Factors
) -> Iterator[PoseDimension]:
    """The dimensions that a factor names, class by class.

    Args:
        learnt: images that the network was trained on.
        others: images of other objects.
        known: the factors of both, one after the other.
    """
    middle = len(learnt.labels)
    rows = np.arange(len(known.label))
    both = (learnt, known.at(rows[:middle])), (others, known.at(rows[middle:]))
    for label in range(runtime.bundle.manifest.num_classes):
        views = [_of_class(runtime, images, factors, label) for images, factors in both]
        effects = [examine(runtime, one) for one in views]
        for dim, factor in enumerate(follow(*views)):
            if factor and (name := _confirm(effects, factor, label=label, dim=dim)):
                yield name


def follow(learnt: Views, others: Views) -> list[Factor | None]:
    """The factor that each of D dimensions follows, on both sets of images; None where it is none.

    A factor explains the share of a dimension's variance that lies between its values.
    """
    shares = [np.stack([_share(one, name) for name in NAMES]) for one in (learnt, others)]  # (4, D)
    best = [share.argmax(axis=0) for share in shares]
    return [
        NAMES[first]
        if first == second and min(share[first, dim] for share in shares) >= FOLLOWED
        else None
        for dim, (first, second) in enumerate(zip(*best, strict=True))
    ]


def examine(runtime: Runtime, views: Views) -> Effect:
    """Compare drawings whose poses move in one dimension with drawings of changed factors.

    Objects are rendered with a little more and a little less of a factor, encoded and decoded.
    """
    some = views.at(np.linspace(0, len(views.poses) - 1, _COMPARED).astype(int))
    label, size_px = int(some.factors.label[0]), runtime.bundle.manifest.height

    def draw(factors: Factors) -> Doubles:
        images = render_factors(factors, size_px=size_px)
        return _decode(runtime, encode_class(runtime, images, label), label)

    def move(delta: float) -> Doubles:
        moves = np.eye(some.poses.shape[1]) * delta
        moved = some.poses[:, None] + moves  # (N, D, D)
        drawn = _decode(runtime, moved.reshape(-1, len(moves)), label)
        return drawn.reshape(*moved.shape[:2], -1)

    by_factor = np.stack(
        [
            draw(_step(some.factors, name, 1)) - draw(_step(some.factors, name, -1))
            for name in NAMES
        ],
        axis=1,
    )  # (N, 4, P)
    middle = len(DELTAS) // 2
    changes = move(DELTAS[middle + 1]) - move(DELTAS[middle - 1])
    explained, along = project(changes, by_factor)
    return Effect(explained.mean(axis=0), np.where(along.sum(axis=0) >= 0, 1.0, -1.0))


def _of_class(runtime: Runtime, examples: Examples, factors: Factors, label: int) -> Views:
    rows = np.flatnonzero(examples.labels == label)
    poses = encode_class(runtime, examples.images[rows], label)
    return Views(poses.astype(np.float64), factors.at(rows))


def _confirm(
    effects: list[Effect], factor: Factor, *, label: int, dim: int
) -> PoseDimension | None:
    """The name of a dimension that follows a factor, if drawings confirm it."""
    index = NAMES.index(factor)
    shares = [effect.explained[:, dim] for effect in effects]  # (4,) each
    if any(share.argmax() != index or share[index] < DRAWN for share in shares):
        return None
    signs = {int(effect.signs[index, dim]) if factor in DIRECTED else 0 for effect in effects}
    strength = round(float(shares[-1][index]), 3)
    return PoseDimension(label, dim, factor, signs.pop(), strength) if len(signs) == 1 else None


def _share(views: Views, name: Factor) -> Doubles:
    """The share (D,) of each dimension's variance that lies between the values of a factor."""
    centred = views.poses - views.poses.mean(axis=0)
    total = np.square(centred).sum(axis=0) + _TINY
    values: NDArray[np.generic] = getattr(views.factors, name)
    if name == "size":  # which has as many values as views: a line in its place
        size = values - values.mean()
        return np.asarray(np.square(size @ centred) / (np.square(size).sum() * total))
    between = np.zeros(centred.shape[1])
    for value in np.unique(values):
        group = centred[values == value]
        between += len(group) * np.square(group.mean(axis=0))
    return np.asarray(between / total)


def _step(factors: Factors, name: Factor, sign: int) -> Factors:
    """The same views with more or less of one factor; lamps go round."""
    values = getattr(factors, name) + sign * _STEPS[name]
    return factors._replace(**{name: values % len(LAMPS) if name == "lamp" else values})


def _decode(runtime: Runtime, poses: NDArray[np.floating], label: int) -> Doubles:
    """Decode poses (N, D) of a class in batches, to (N, pixels)."""
    batches = (poses[start : start + _BATCH] for start in range(0, len(poses), _BATCH))
    drawn = [
        runtime.decode(batch.astype(np.float32), np.full(len(batch), label, np.int64))
        for batch in batches
    ]
    return np.concatenate(drawn).reshape(len(poses), -1).astype(np.float64)
