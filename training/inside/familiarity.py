"""Fits, from known pictures alone, the rule that says how familiar a picture looks."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.familiarity import Familiarity, Ranks, Signs, read_signs, tabulate
from model.preprocess import Floats
from model.runtime import Runtime

Scores = NDArray[np.float64]
KNOWN_SHARE = 0.99
"""Of the known pictures, on the threshold's own half."""
_TAIL = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
QUANTILES = (*_TAIL, 0.5, *(round(1 - share, 4) for share in reversed(_TAIL)))
_BATCH = 64


class Verdict(NamedTuple):
    """How a rule fares on pictures of another kind."""

    kind: str
    images: int
    auc: float
    """Chance that a known picture has the higher score of the two; ties count half."""
    known_percent: float
    """Taken for known."""


def fit_familiarity(runtime: Runtime, images: Floats, *, pictures: str) -> Familiarity:
    """Fit the rule: quantiles on the first half of known pictures, the threshold on the second.

    Args:
        runtime: the network.
        images: (N, 1, H, W) in [0, 1].
        pictures: what they are, for the manifest.
    """
    signs = examine(runtime, images)
    middle = len(images) // 2
    rule = Familiarity(
        quantiles=QUANTILES,
        length=tabulate(signs.length[:middle], QUANTILES),
        margin=tabulate(signs.margin[:middle], QUANTILES),
        error=tabulate(signs.error[:middle], QUANTILES),
        threshold=0.0,
        pictures=pictures,
    )
    scores = rule.rank(Signs(*(sign[middle:] for sign in signs))).score
    return replace(rule, threshold=tabulate(scores, [1 - KNOWN_SHARE])[0])


def examine(runtime: Runtime, images: Floats) -> Signs:
    """The signs of pictures (N, 1, H, W)."""
    parts = []
    for start in range(0, len(images), _BATCH):
        batch = images[start : start + _BATCH]
        lengths, poses = runtime.encode(batch)
        labels = lengths.argmax(axis=1)
        drawn = runtime.decode(poses[np.arange(len(batch)), labels], labels)
        parts.append(read_signs(lengths, batch, drawn))
    return Signs(*(np.concatenate(sign) for sign in zip(*parts, strict=True)))


def judge(rule: Familiarity, known: Ranks, kind: str, strangers: Ranks) -> Verdict:
    """How well the rule tells a kind of strangers from known pictures."""
    return Verdict(
        kind,
        len(strangers.score),
        round(auc(known.score, strangers.score), 4),
        round(100 * float(np.mean(strangers.score >= rule.threshold)), 2),
    )


def auc(higher: Scores, lower: Scores) -> float:
    """Area under the ROC curve: the chance that one of `higher` exceeds one of `lower`.

    The Mann-Whitney statistic over all pairs; ties count half.
    """
    ordered = np.sort(lower)
    below = np.searchsorted(ordered, higher, "left")
    up_to = np.searchsorted(ordered, higher, "right")
    return float((below + up_to).mean() / (2 * len(ordered)))


def roc(known: Scores, strangers: Scores) -> list[tuple[float, float]]:
    """Points (share of strangers, share of known pictures) that reach each threshold."""
    thresholds = np.concatenate(([np.inf], np.unique(np.concatenate((known, strangers)))[::-1]))
    return [
        (float(np.mean(strangers >= limit)), float(np.mean(known >= limit))) for limit in thresholds
    ]
