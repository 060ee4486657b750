"""Fit a bundle's calibration on labelled images that its network was not trained on.

Where a network was trained on all images, a twin answers them: a network of the same recipe that
left them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize

from model.bundle import Bundle
from model.bundle.confidence import COVERAGES, Confidence, Doubles, Input, Method, score_classes
from model.capsnet import build
from model.preprocess import Floats, scale
from model.runtime import Runtime
from training.answers import BATCH, measure_presence
from training.data.datasets import Examples
from training.data.source import DatasetError
from training.provenance import Run, runs_of, unseen_by
from training.recipes import Recipe, recipe_of
from training.reliability import REPORTED, measure
from training.state import starting_point
from training.training_data import FolderSplit

Labels = NDArray[np.int64]
MIN_IMAGES = 2
"""The fewest images of a calibration."""
MIN_ISOTONIC, MIN_WRONG = 100, 20
"""The fewest images, and wrong answers, from which isotonic regression is tried. If all answers are
right, isotonic regression gives every image the same probability, however low the presence is."""
RARE = 0.5
"""Classes are rare, so that each gets thresholds of its own, where one has fewer images than this
share of the mean."""
FOLDS = 10
_TEMPERATURES = (0.05, 500.0)
_SEED = 5


class Answered(NamedTuple):
    """Labelled images, as a network answered them that had not seen them."""

    presence: Floats
    """(N, K)."""
    labels: Labels
    """(N,)."""
    described: str


def answer_unseen(bundle: Bundle, examples: Examples, twin: Path | None) -> Answered | None:
    """Answer held-out images by the bundle, or by a twin; None where neither left them out.

    Args:
        examples: the images that `train` holds out.
        twin: a run or a bundle, by path or shipped name.

    Raises:
        DatasetError: the twin is of other images or another network, or has seen them too.
        training.state.CheckpointError: there is no such run.
    """
    images, labels = examples
    count, runs = len(labels), runs_of(bundle.manifest.training)
    if twin is not None:
        other = starting_point(twin)
        difference = _compare(bundle, other.recipe)
        if not unseen_by(other.runs):
            raise DatasetError(f"the twin {twin} was trained on all images: none is held out")
        trained_on = bundle.manifest.training.get("pictures")
        if trained_on and not FolderSplit(**trained_on).is_same(other.pictures):
            raise DatasetError(f"the twin {twin} holds out other pictures, or is of another folder")
        network = build(other.recipe.network)
        network.load_state_dict(other.network)
        presence = measure_presence(network, images, torch.device("cpu"))
        described = f"{count:,} held-out training images, answered by a twin of the same recipe"
        described += f"{difference}, seed {other.run.seed}, that was not trained on them"
        return Answered(presence, labels, described + _chosen(other.run))
    if not unseen_by(runs):
        return None
    runtime = Runtime(bundle)
    parts = [
        runtime.encode(scale(images[start : start + BATCH])).presence
        for start in range(0, count, BATCH)
    ]
    described = f"{count:,} held-out training images, which the network was not trained on"
    return Answered(np.concatenate(parts), labels, described + _chosen(runs[-1]))


def fit_confidence(answered: Answered, *, kind: Input) -> Confidence | None:
    """Fit the calibration; None of fewer than MIN_IMAGES images.

    Temperature or isotonic regression is taken, whichever has the lower Brier score of the most
    probable label, cross-validated. The thresholds are those of split conformal prediction.
    """
    presence, labels, described = answered
    if len(labels) < MIN_IMAGES:
        return None
    out_of_fold = {method: _cross_validate(answered, method, kind) for method in _methods(answered)}
    method = min(out_of_fold, key=lambda name: out_of_fold[name].brier)
    fitted = fit(presence, labels, method=method, kind=kind)
    folds = out_of_fold[method]
    scores = measure(folds.probability, folds.sets, presence.argmax(axis=1) == labels, labels)
    return replace(fitted, images=described, cross_validated=scores)


def fit(presence: Floats, labels: Labels, *, method: Method, kind: Input) -> Confidence:
    """Fit temperature, isotonic regression and thresholds to presence (N, K) and labels (N,)."""
    temperature = fit_temperature(presence, labels, kind)
    scores = score_classes(presence, temperature, kind)
    right = presence.argmax(axis=1) == labels
    at, values = _fit_isotonic(scores.max(axis=1), right) if method == "isotonic" else ((), ())
    own = scores[np.arange(len(labels)), labels]
    counts = np.bincount(labels, minlength=presence.shape[1])
    groups = [own]
    if counts.min() < RARE * counts.mean():
        groups = [own[labels == label] for label in range(len(counts))]
    return Confidence(
        images="",
        count=len(labels),
        input=kind,
        temperature=temperature,
        method=method,
        coverages=COVERAGES,
        thresholds=tuple(find_thresholds(group) for group in groups),
        scores=at,
        probabilities=values,
    )


def fit_temperature(presence: Floats, labels: Labels, kind: Input) -> float:
    """Find the temperature with the lowest log loss of the most probable label.

    The targets are Platt's (1999, section 2.2), (n + 1) / (n + 2) and 1 / (n + 2), not 1 and 0: few
    images, all answered rightly, do not make the network certain.
    """
    right = presence.argmax(axis=1) == labels
    correct = int(right.sum())
    target = np.where(right, (correct + 1) / (correct + 2), 1 / (len(right) - correct + 2))

    def loss(logarithm: float) -> float:
        highest = score_classes(presence, math.exp(logarithm), kind).max(axis=1)
        highest = highest.clip(1e-12, 1 - 1e-12)
        return float(-(target * np.log(highest) + (1 - target) * np.log1p(-highest)).mean())

    low, high = map(math.log, _TEMPERATURES)
    found = optimize.minimize_scalar(loss, bounds=(low, high), method="bounded")
    return math.exp(float(found.x))


def find_thresholds(scores: Doubles) -> tuple[float, ...]:
    """Find the least score of a label in a set, for each of COVERAGES.

    Args:
        scores: p (N,) of the labels of N images. The threshold for coverage c is the k-th highest
            of them, k = ceil((N + 1) c); zero, so that all labels are in the set, if k exceeds N.
    """
    descending, count = -np.sort(-scores), len(scores)
    ranks = [math.ceil((count + 1) * coverage - 1e-9) for coverage in COVERAGES]
    return tuple(float(descending[rank - 1]) if rank <= count else 0.0 for rank in ranks)


def _fit_isotonic(
    highest: Doubles, right: NDArray[np.bool_]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The ends of the blocks of isotonic regression, and the share of right answers in each.

    No block is certain: of n answers, r of them right, the share is (r + 1) / (n + 2), made to rise
    again.
    """
    order = np.argsort(highest, kind="stable")
    blocks = optimize.isotonic_regression(right[order].astype(np.float64)).blocks
    sizes = np.diff(blocks)
    shares = (np.add.reduceat(right[order].astype(np.float64), blocks[:-1]) + 1) / (sizes + 2)
    shares = optimize.isotonic_regression(shares, weights=sizes).x
    ends = np.stack((blocks[:-1], blocks[1:] - 1), axis=1)
    at, values = highest[order][ends].ravel(), shares.repeat(2)
    return tuple(at.tolist()), tuple(values.tolist())


class _OutOfFold(NamedTuple):
    """What calibrations of the other folds say of each image."""

    probability: Doubles
    sets: dict[float, NDArray[np.bool_]]
    brier: float


def _methods(answered: Answered) -> tuple[Method, ...]:
    labels = answered.labels
    wrong = int((answered.presence.argmax(axis=1) != labels).sum())
    has_enough = len(labels) >= MIN_ISOTONIC and wrong >= MIN_WRONG
    return ("temperature", "isotonic") if has_enough else ("temperature",)


def _cross_validate(answered: Answered, method: Method, kind: Input) -> _OutOfFold:
    presence, labels, _ = answered
    probability = np.zeros(len(labels))
    sets: dict[float, NDArray[np.bool_]] = {
        coverage: np.zeros(presence.shape, np.bool_) for coverage in REPORTED
    }
    for rest, fold in _folds(len(labels)):
        fitted = fit(presence[rest], labels[rest], method=method, kind=kind)
        probability[fold] = fitted.find_probability(presence[fold])
        for coverage, chosen in sets.items():
            chosen[fold] = fitted.find_labels(presence[fold], coverage)
    right = presence.argmax(axis=1) == labels
    return _OutOfFold(probability, sets, float(np.square(probability - right).mean()))


def _folds(count: int) -> Iterator[tuple[Labels, Labels]]:
    """The rows of all other folds and of one, for each fold."""
    order = np.random.default_rng(_SEED).permutation(count)
    for fold in np.array_split(order, min(FOLDS, count)):
        yield np.setdiff1d(order, fold), fold


def _compare(bundle: Bundle, other: Recipe) -> str:
    """How the twin's recipe differs, in words.

    The decoder may differ, because it takes no part in the answer.

    Raises:
        DatasetError: the twin is of another encoder or of other images.
    """
    own, twin = (_without_decoder(one) for one in (recipe_of(bundle), other))
    for name in ("network", "dataset", "task"):
        if own[name] != twin[name]:
            raise DatasetError(f"the twin has another {name} than {bundle.manifest.name}")
    different = [key for key in own if own[key] != twin[key] and key not in ("name", "keep")]
    said = (f"{key} {twin[key]}, not {own[key]}" for key in different)
    return f" ({'; '.join(said)})" if different else ""


def _without_decoder(recipe: Recipe) -> dict[str, Any]:
    fields = recipe.to_dict()
    del fields["decoder"]
    network = fields["network"]
    return fields | {"network": {key: network[key] for key in network if "decoder" not in key}}


def _chosen(run: Run) -> str:
    chosen = f"; they also chose the weights of step {run.kept_step:,}, so expect a lower coverage"
    return chosen if run.kept_step else ""
