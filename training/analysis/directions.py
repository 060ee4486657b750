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
from sklearn.linear_model import Ridge

from model.bundle import Manifest
from model.bundle.directions import RANKS, Direction, Quality, Reading
from model.measures import Doubles, Measure, measure, measures_of
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
    """Poses of one class, with what is known of their images."""

    poses: Doubles
    """(N, D)."""
    values: Doubles
    """(N, F)."""

    def at(self, rows: NDArray[np.int64]) -> Posed:
        """The poses of some of the images."""
        return Posed(self.poses[rows], self.values[rows])


class Folds(NamedTuple):
    """The poses of a class that give its directions, and those that score them."""

    fitted: Posed
    scored: list[tuple[Posed, Posed]]
    """Poses that are fitted, and others that score that fit."""


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
    values = measure(manifest, as_floats(objects).reshape(-1, *manifest.image_shape))
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
        folds = divide_class(learnt, held_out, label)
        if folds is None:
            continue

        def drawn(poses: Doubles, label: int = label) -> Doubles:
            return measure(manifest, decode_class(runtime, poses, label))

        found = list(fit_class(folds, drawn, measures=measures_of(manifest), label=label))
        yield from found
        if manifest.preprocess == "crop" or sum(one.offered for one in found) < PRINCIPAL:
            yield from fit_principal(runtime, folds, label=label)


def divide_class(learnt: Shown, held_out: Shown | None, label: int) -> Folds | None:
    """The poses of a class that are fitted, and those that score; None if there are few."""
    fitted = _of_class(learnt, label, FITTED)
    if held_out is not None:
        scored = _of_class(held_out, label, SCORED)
        if len(scored.poses) >= _LEAST_HELD_OUT:
            return Folds(fitted, [(fitted, scored)])
        fitted = Posed(*(np.concatenate(pair) for pair in zip(fitted, scored, strict=True)))
    if len(fitted.poses) < LEAST:
        return None
    folds = np.random.default_rng(label).permutation(len(fitted.poses)) % _FOLDS
    others = [
        (np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(_FOLDS)
    ]
    return Folds(fitted, [(fitted.at(rest), fitted.at(fold)) for rest, fold in others])


def fit_class(
    folds: Folds, drawn: Measured, *, measures: Sequence[Measure], label: int
) -> Iterator[Direction]:
    """Fit a direction for each measure of one class.

    Args:
        drawn: measures drawings.
        measures: the names of the F values.
    """
    std = drawn(folds.fitted.poses).std(axis=0)

    def fit(fitted: Posed) -> Moves:
        covariance = _covariance(fitted.poses)
        slopes = _fit_slopes(fitted.poses, covariance, drawn) / (std + _SMALL)[:, None]  # (F, D)
        spread = slopes @ covariance @ slopes.T + _SMALL * np.eye(len(std))
        moves = (covariance @ slopes.T @ np.linalg.inv(spread)).T
        return Moves(moves, lambda poses: drawn(poses) / (std + _RIDGE), std)

    (moves, *_), qualities = _fit_and_score(folds, fit, len(std))
    weights, intercepts = fit_readings(folds.fitted)
    values, read = read_held_out(folds)
    scored = [part for _, part in folds.scored]
    offsets = (np.concatenate([drawn(part.poses) for part in scored]) - read).mean(axis=0)
    known = np.concatenate([folds.fitted.poses, *(part.poses for part in scored)])
    quantiles = np.quantile(known @ weights + intercepts, RANKS, axis=0)
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


def fit_principal(runtime: Runtime, folds: Folds, *, label: int) -> Iterator[Direction]:
    """The moves of a pose, of one standard deviation, that change the drawing most."""

    def pixels(poses: Doubles) -> Doubles:
        return decode_class(runtime, poses, label).reshape(len(poses), -1).astype(np.float64)

    def fit(fitted: Posed) -> Moves:
        covariance = _covariance(fitted.poses)
        root = np.linalg.cholesky(covariance)
        slopes = _fit_slopes(fitted.poses, covariance, pixels)
        images, sizes, turns = np.linalg.svd(slopes @ root, full_matrices=False)
        images = images[:, :PRINCIPAL] / (sizes[:PRINCIPAL] + _RIDGE)
        return Moves(turns @ root.T, lambda poses: pixels(poses) @ images, sizes)

    (moves, _, sizes), qualities = _fit_and_score(folds, fit, PRINCIPAL)
    shares = np.square(sizes) / (np.square(sizes).sum() + _RIDGE)
    weights = np.linalg.pinv(moves)  # its columns read the moves
    mean = folds.fitted.poses.mean(axis=0)
    for index, quality in enumerate(qualities):
        along = (folds.fitted.poses - mean) @ weights[:, index]
        yield Direction(
            label=label,
            name=f"change-{index + 1}",
            unit="sd",
            vector=_rounded(moves[index]),
            std=1,
            quantiles=_rounded(np.quantile(along, RANKS)),
            quality=quality,
            reading=Reading(
                intercept=_round(-mean @ weights[:, index]),
                weights=_rounded(weights[:, index]),
                r2=1,
                mean_error=0,
            ),
            share=_round(shares[index]),
        )


def fit_readings(fitted: Posed) -> tuple[Doubles, Doubles]:
    """The weights (D, F) and intercepts (F,) that read values from poses, by ridge regression."""
    spread = np.square(fitted.poses - fitted.poses.mean(axis=0)).sum() / fitted.poses.shape[1]
    ridge = Ridge(alpha=_SMALL * spread).fit(fitted.poses, fitted.values)
    return ridge.coef_.reshape(-1, fitted.poses.shape[1]).T, np.atleast_1d(ridge.intercept_)


def read_held_out(folds: Folds) -> tuple[Doubles, Doubles]:
    """The values (N, F) of images that score, and what fits to other images read of them."""
    read = []
    for fitted, scored in folds.scored:
        weights, intercepts = fit_readings(fitted)
        read.append(scored.poses @ weights + intercepts)
    return np.concatenate([scored.values for _, scored in folds.scored]), np.concatenate(read)


def decode_class(runtime: Runtime, poses: Doubles, label: int) -> Floats:
    """Decode poses (N, D) of a class, to (N, C, H, W)."""
    return decode(runtime, poses.astype(np.float32), np.full(len(poses), label))


def _of_class(shown: Shown, label: int, count: int) -> Posed:
    rows, objects = np.nonzero(shown.labels == label)
    rows, objects = rows[:count], objects[:count]
    return Posed(shown.poses[rows, label].astype(np.float64), shown.values[rows, objects])


def _fit_and_score(
    folds: Folds, fit: Callable[[Posed], Moves], count: int
) -> tuple[Moves, list[Quality]]:
    """The moves of a class, and how well the first of each fit do on the images that score it."""
    fits = [fit(fitted) for fitted, _ in folds.scored]
    final = fits[0] if len(fits) == 1 else fit(folds.fitted)
    qualities = []
    for index in range(min(count, len(final.moves))):
        slopes = np.concatenate(
            [
                (drawn(scored.poses + own[index]) - drawn(scored.poses - own[index])) / 2
                for (own, drawn, _), (_, scored) in zip(fits, folds.scored, strict=True)
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
