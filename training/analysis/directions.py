"""Fit directions of a pose that change one measure of the drawing and leave the others alone.

Small changes of the poses of a class are drawn from their covariance C, decoded and measured. J is
the linear map from changes of a pose to changes of F measures, by least squares. The smallest move,
in the metric of C, that changes one measure by one unit and no other is a column of

    G = C J' (J C J' + e)^-1.

A linear regression reads the measures of an image from its pose. All figures are measured on images
that had no part in the fit that they score: on held-out images or, where those are few, on each
third of all images by a fit to the other two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.bundle import Manifest
from model.bundle.directions import RANKS, Direction, Quality, Reading
from model.measures import Doubles, Measure, measure_images, measures_of
from model.preprocess import Floats
from model.runtime import Runtime
from training.answers import Answers, as_floats, decode

FITTED, SCORED = 300, 100
"""The most images of a class that a fit takes, and of others that score it."""
LEAST = 24
"""The fewest images of a class that are fitted."""
PRINCIPAL = 4
"""The number of principal directions, and the fewest measures that do without them."""
_LEAST_HELD_OUT, _FOLDS = 50, 3
"""With fewer held-out images of a class, all its images are divided into folds."""
_CHANGES, _STEP = 500, 0.35
"""The number of changes of a pose, and their size in standard deviations."""
_SMALL, _RIDGE = 1e-3, 1e-6
_DIGITS = 5
Rows = NDArray[np.int64]
Measured = Callable[[Doubles], Doubles]
"""Measures the drawings of poses (N, D), as (N, F)."""


class Shown(NamedTuple):
    """Poses of images, and what is known of their objects: one, or the two digits of a pair."""

    poses: Floats
    """(N, K, D)."""
    labels: NDArray[np.int64]
    """(N, L) of the objects."""
    values: Doubles
    """(N, L, F): what is known of the objects, such as the measures of each one alone."""


class Posed(NamedTuple):
    """Poses of one class, and how they are divided."""

    poses: Doubles
    """(N, D)."""
    values: Doubles
    """(N, F): what is known of their images."""
    parts: Sequence[tuple[Rows, Rows]]
    """Rows that are fitted, and others that score that fit."""
    fitted: Rows
    """The rows that give the directions."""

    @property
    def scored(self) -> Rows:
        """The rows that score, part by part."""
        return np.concatenate([rows for _, rows in self.parts])


class Moves(NamedTuple):
    """Moves of a pose, each of which should change one measure by one standard deviation."""

    moves: Doubles
    """(M, D)."""
    drawn: Measured
    """Measures drawings, each measure in its standard deviation."""
    sizes: Doubles
    """(M,), how much each move changes a drawing."""


def measure_objects(manifest: Manifest, answers: Answers) -> Shown:
    """The poses of images, and the measures of their objects, each alone."""
    labels = answers.labels.reshape(len(answers.labels), -1)
    objects = answers.images if answers.object_images is None else answers.object_images
    values = measure_images(manifest, as_floats(objects).reshape(-1, *manifest.image_shape))
    return Shown(answers.poses, labels, values.reshape(*labels.shape, -1))


def fit_directions(
    runtime: Runtime, learnt: Shown, held_out: Shown | None = None
) -> Iterator[Direction]:
    """Fit the directions of every class of which there are at least LEAST images.

    Photographs, and classes with fewer than PRINCIPAL good directions, get principal ones too.

    Args:
        runtime: of a network with a decoder.
        learnt: what is fitted.
        held_out: what is scored.
    """
    manifest = runtime.bundle.manifest
    for label in range(manifest.num_classes):
        posed = divide_class(learnt, held_out, label)
        if posed is None:
            continue

        def drawn(poses: Doubles, label: int = label) -> Doubles:
            return measure_images(manifest, decode_class(runtime, poses, label))

        found = list(fit_class(posed, drawn, measures=measures_of(manifest), label=label))
        yield from found
        if manifest.preprocess == "crop" or sum(one.offered for one in found) < PRINCIPAL:
            yield from fit_principal(runtime, posed, label=label)


def divide_class(learnt: Shown, held_out: Shown | None, label: int) -> Posed | None:
    """The poses of a class that are fitted, and those that score; None if there are few."""
    poses, values = _of_class(learnt, label, FITTED)
    count = len(poses)
    if held_out is not None:
        scored = _of_class(held_out, label, SCORED)
        poses, values = np.concatenate((poses, scored[0])), np.concatenate((values, scored[1]))
    rows = np.arange(len(poses))
    if len(rows) - count >= _LEAST_HELD_OUT:
        return Posed(poses, values, [(rows[:count], rows[count:])], rows[:count])
    if len(rows) < LEAST:
        return None
    folds = np.random.default_rng(label).permutation(len(rows)) % _FOLDS
    parts = [(rows[folds != fold], rows[folds == fold]) for fold in range(_FOLDS)]
    return Posed(poses, values, parts, rows)


def fit_class(
    posed: Posed, drawn: Measured, *, measures: Sequence[Measure], label: int
) -> Iterator[Direction]:
    """Fit a direction for each measure of one class.

    Args:
        drawn: measures drawings.
        measures: the names of the F values.
    """
    std = drawn(posed.poses[posed.fitted]).std(axis=0)

    def fit(poses: Doubles) -> Moves:
        covariance = _covariance(poses)
        slopes = _fit_slopes(poses, covariance, drawn) / (std + _SMALL)[:, None]  # (F, D)
        spread = slopes @ covariance @ slopes.T + _SMALL * np.eye(len(std))
        moves = (covariance @ slopes.T @ np.linalg.inv(spread)).T
        return Moves(moves, lambda poses: drawn(poses) / (std + _RIDGE), std)

    (moves, *_), qualities = _fit_and_score(posed, fit, len(std))
    weights, intercepts = fit_readings(posed, posed.fitted)
    values, read = read_held_out(posed)
    offsets = (drawn(posed.poses[posed.scored]) - read).mean(axis=0)
    quantiles = np.quantile(posed.poses @ weights + intercepts, RANKS, axis=0)
    errors, variances = values - read, values.var(axis=0) + _RIDGE**2
    for index, (name, unit, *_) in enumerate(measures):
        if std[index] <= _RIDGE:
            continue
        yield Direction(
            label=label,
            name=name,
            unit=unit,
            vector=_rounded(moves[index] / std[index]),
            std=_round(std[index]),
            quantiles=_rounded(np.maximum.accumulate(quantiles[:, index])),
            quality=qualities[index],
            reading=Reading(
                intercept=_round(intercepts[index]),
                weights=_rounded(weights[:, index]),
                r2=_round(1 - np.square(errors[:, index]).mean() / variances[index]),
                mean_error=_round(np.abs(errors[:, index]).mean()),
            ),
            offset=_round(offsets[index]),
        )


def fit_principal(runtime: Runtime, posed: Posed, *, label: int) -> Iterator[Direction]:
    """The moves of a pose, of one standard deviation, that change the drawing most."""

    def pixels(poses: Doubles) -> Doubles:
        return decode_class(runtime, poses, label).reshape(len(poses), -1).astype(np.float64)

    def fit(poses: Doubles) -> Moves:
        covariance = _covariance(poses)
        root = np.linalg.cholesky(covariance)
        slopes = _fit_slopes(poses, covariance, pixels)
        images, sizes, turns = np.linalg.svd(slopes @ root, full_matrices=False)
        images = images[:, :PRINCIPAL] / (sizes[:PRINCIPAL] + _RIDGE)
        return Moves(turns @ root.T, lambda poses: pixels(poses) @ images, sizes)

    (moves, _, sizes), qualities = _fit_and_score(posed, fit, PRINCIPAL)
    shares = np.square(sizes) / (np.square(sizes).sum() + _RIDGE)
    weights = np.linalg.pinv(moves)  # its columns read the moves
    fitted = posed.poses[posed.fitted]
    mean = fitted.mean(axis=0)
    for index, quality in enumerate(qualities):
        yield Direction(
            label=label,
            name=f"change-{index + 1}",
            unit="sd",
            vector=_rounded(moves[index]),
            std=1,
            quantiles=_rounded(np.quantile((fitted - mean) @ weights[:, index], RANKS)),
            quality=quality,
            reading=Reading(
                intercept=_round(-mean @ weights[:, index]),
                weights=_rounded(weights[:, index]),
                r2=1,
                mean_error=0,
            ),
            share=_round(shares[index]),
        )


def fit_readings(posed: Posed, rows: Rows) -> tuple[Doubles, Doubles]:
    """The weights (D, F) and intercepts (F,) that read values from poses, by ridge regression."""
    from sklearn.linear_model import Ridge  # noqa: PLC0415  scikit-learn takes a second

    poses = posed.poses[rows]
    spread = np.square(poses - poses.mean(axis=0)).sum() / poses.shape[1]
    ridge = Ridge(alpha=_SMALL * spread).fit(poses, posed.values[rows])
    return ridge.coef_.reshape(-1, poses.shape[1]).T, np.atleast_1d(ridge.intercept_)


def read_held_out(posed: Posed) -> tuple[Doubles, Doubles]:
    """The values (N, F) of images that score, and what fits to other images read of them."""
    read = []
    for fitted, scored in posed.parts:
        weights, intercepts = fit_readings(posed, fitted)
        read.append(posed.poses[scored] @ weights + intercepts)
    return posed.values[posed.scored], np.concatenate(read)


def decode_class(runtime: Runtime, poses: Doubles, label: int) -> Floats:
    """Decode poses (N, D) of a class, to (N, C, H, W)."""
    return decode(runtime, poses.astype(np.float32), np.full(len(poses), label))


def _of_class(shown: Shown, label: int, count: int) -> tuple[Doubles, Doubles]:
    """The poses (N, D) of a class, and what is known of their images, (N, F)."""
    rows, objects = (found[:count] for found in np.nonzero(shown.labels == label))
    return shown.poses[rows, label].astype(np.float64), shown.values[rows, objects]


def _fit_and_score(
    posed: Posed, fit: Callable[[Doubles], Moves], count: int
) -> tuple[Moves, list[Quality]]:
    """The moves of a class, and how well the first of each fit do on the images that score it."""
    fits = [fit(posed.poses[fitted]) for fitted, _ in posed.parts]
    final = fits[0] if len(fits) == 1 else fit(posed.poses[posed.fitted])
    qualities = []
    for index in range(min(count, len(final.moves))):
        slopes = np.concatenate(
            [
                (drawn(poses + own[index]) - drawn(poses - own[index])) / 2
                for (own, drawn, _), (_, scored) in zip(fits, posed.parts, strict=True)
                for poses in [posed.poses[scored]]
            ]
        )
        got, others = slopes[:, index], np.delete(slopes.mean(axis=0), index)
        qualities.append(
            Quality(
                got=_round(got.mean()),
                spread=_round(got.std()),
                same_way=_round((got > 0).mean()),
                largest_other=_round(np.abs(others).max(initial=0)),
            )
        )
    return final, qualities


def _covariance(poses: Doubles) -> Doubles:
    covariance = np.atleast_2d(np.cov(poses, rowvar=False))
    ridge = _RIDGE * (np.trace(covariance) / len(covariance) + _RIDGE)
    return np.asarray(covariance + ridge * np.eye(len(covariance)))


def _fit_slopes(poses: Doubles, covariance: Doubles, drawn: Measured) -> Doubles:
    """The linear map (F, D) from small changes of poses (N, D) to changes of what is measured."""
    rng = np.random.default_rng(0)
    bases = poses[np.arange(_CHANGES) % len(poses)]
    changes = _STEP * rng.standard_normal(bases.shape) @ np.linalg.cholesky(covariance).T
    effects = drawn(bases + changes) - drawn(bases - changes)
    return np.asarray(np.linalg.lstsq(2 * changes, effects, rcond=None)[0].T)


def _round(value: float | np.floating) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _rounded(values: NDArray[np.floating]) -> tuple[float, ...]:
    return tuple(map(_round, values))
