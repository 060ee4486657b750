"""Fit the novelty rule on held-out training images alone.

What it makes of images of other kinds is reported; of those, noise and clothes chose `RIDGE`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy import stats

from model.bundle import Manifest
from model.bundle.novelty import NoveltyRule, PoseGaussians
from model.preprocess import Floats, prepare, scale
from model.runtime import Runtime
from model.views.novelty import (
    Features,
    flatten_poses,
    measure_features,
    rank,
    tabulate,
)
from training.data.datasets import DATASETS, NOVELTY_DATASETS, load
from training.data.source import DatasetError, DataSplit

Scores = NDArray[np.float64]
TYPICAL_SHARE = 0.95
"""The share of images that are not novel, of those that set the threshold."""
RIDGE = 1e-3
"""The share of the poses' mean variance that is added to variances; chosen on noise and clothes
alone.
"""
MIN_IMAGES = 300
"""The fewest images of a rule. Half of them, drawn at random, set the threshold."""
COUNT = 1000
"""The number of images of each other kind."""
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
"""All letters but I and O, which look like the digits 1 and 0."""
_TAIL = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
QUANTILES = (*_TAIL, 0.5, *(round(1 - share, 4) for share in reversed(_TAIL)))
_CANVAS, _FONT, _TURN_DEG = 96, 64, 15
_BATCH = 64


def fit_novelty(
    runtime: Runtime, fitted: Floats, typical: Floats, *, described: str
) -> NoveltyRule:
    """Fit Gaussians and quantiles on some images, and the threshold on others of the same kind.

    A threshold of zero finds no image novel. So where the images are too few for the covariance,
    the rule goes without distances.

    Args:
        fitted: (N, C, H, W) in [0, 1].
        typical: (M, C, H, W), of which TYPICAL_SHARE are not novel.
        described: what the images are, for the manifest.
    """
    presence, poses, decoded = _answer(runtime, fitted)
    for gaussians in (fit_gaussians(presence, poses), None):
        features = measure_features(presence, poses, fitted, decoded, gaussians)
        length, margin, error, distance = (
            () if feature is None else tabulate(feature, QUANTILES) for feature in features
        )
        rule = NoveltyRule(QUANTILES, length, margin, error, threshold=0.0, images=described)
        rule = replace(rule, distance=distance, gaussians=gaussians)
        lowest = score_novelty(runtime, typical, rule)
        threshold = tabulate(lowest, [1 - TYPICAL_SHARE])[0]
        if threshold > 0:
            break
    return replace(rule, threshold=threshold)


def fit_gaussians(presence: Floats, poses: Floats) -> PoseGaussians:
    """Fit Gaussians to poses (N, K, D): a mean for each most present class, and one covariance.

    A class that is never the most present one gets the mean of all images. The whitening matrix is
    that of the covariance divided by its mean variance, so that it fits into 16 bits.
    """
    flat = flatten_poses(presence, poses).astype(np.float64)  # (N, K * D)
    labels = presence.argmax(axis=1)
    means = np.tile(flat.mean(axis=0), (presence.shape[1], 1))  # (K, K * D)
    for label in np.unique(labels):
        means[label] = flat[labels == label].mean(axis=0)
    covariance = np.cov(flat - means[labels], rowvar=False, bias=True)
    scaled = covariance / covariance.diagonal().mean() + RIDGE * np.eye(len(covariance))
    whitening = np.linalg.inv(np.linalg.cholesky(scaled)).T
    return PoseGaussians(means.astype(np.float32), whitening.astype(np.float16))


def find_features(runtime: Runtime, images: Floats, gaussians: PoseGaussians | None) -> Features:
    """The features of images (N, C, H, W)."""
    presence, poses, decoded = _answer(runtime, images)
    return measure_features(presence, poses, images, decoded, gaussians)


def score_novelty(runtime: Runtime, images: Floats, rule: NoveltyRule) -> Scores:
    """Return the lowest rank (N,) of images (N, C, H, W): novel ones are below the threshold."""
    features = find_features(runtime, images, rule.gaussians)
    return np.asarray(rank(rule, features).lowest, np.float64)


class Separation(NamedTuple):
    """How well a rule separates images of other kinds from typical ones."""

    others: tuple[dict[str, Any], ...]
    """For `NoveltyRule.others`."""
    curves: dict[str, tuple[Scores, Scores]]
    """The ROC curve of each kind: see `roc`."""


def separate(
    runtime: Runtime, rule: NoveltyRule, data_dir: Path, *, typical: Scores | None, described: str
) -> Separation:
    """Score images of other kinds.

    Args:
        typical: the lowest ranks of images that the network has not learnt; None where there are
            none, so that nothing is compared.
        described: what these are, for the manifest.
    """
    scores = {
        kind: score_novelty(runtime, images, rule)
        for kind, images in draw_others(runtime.bundle.manifest, data_dir).items()
    }
    others = [
        {
            "kind": kind,
            "images": len(few),
            "known_percent": round(100 * float(np.mean(few >= rule.threshold)), 2),
        }
        for kind, few in scores.items()
    ]
    if typical is None:
        return Separation(tuple(others), {})
    compared = [
        {**one, "auc": round(auc(typical, few), 4), "typical": described}
        for one, few in zip(others, scores.values(), strict=True)
    ]
    return Separation(tuple(compared), {kind: roc(typical, few) for kind, few in scores.items()})


def _answer(runtime: Runtime, images: Floats) -> list[Floats]:
    """Presence (N, K) and poses (N, K, D) of images, and their longest capsules decoded."""
    parts = []
    for start in range(0, len(images), _BATCH):
        batch = images[start : start + _BATCH]
        presence, poses = runtime.encode(batch)
        labels = presence.argmax(axis=1)
        decoded = runtime.decode(poses[np.arange(len(batch)), labels], labels)
        parts.append((presence, poses, decoded))
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def auc(higher: Scores, lower: Scores) -> float:
    """Compute the area under the ROC curve: the chance that one of `higher` exceeds one of `lower`.

    The Mann-Whitney statistic over all pairs; ties count half.
    """
    return float(stats.mannwhitneyu(higher, lower).statistic) / (len(higher) * len(lower))


def roc(typical: Scores, others: Scores) -> tuple[Scores, Scores]:
    """Compute the shares (T,) of the others and of typical images that are not novel.

    Those whose score reaches each threshold, from the highest down.
    """
    thresholds = np.concatenate(([np.inf], np.unique(np.concatenate((typical, others)))[::-1]))
    across, up = (
        1 - np.searchsorted(np.sort(scores), thresholds) / len(scores)
        for scores in (others, typical)
    )
    return across, up


def draw_others(manifest: Manifest, data_dir: Path, *, seed: int = 0) -> dict[str, Floats]:
    """Draw up to COUNT images (N, C, H, W) of each kind that the network was not trained on.

    - noise: every pixel uniform in [0, 1];
    - blanks: one shade each, from black to half;
    - letters: capitals in Pillow's font, rotated a little, prepared as the service does it;
    - images of every other data set of the same shape whose files are in `data_dir`.
    """
    rng, shape = np.random.default_rng(seed), manifest.image_shape
    channels = (COUNT, shape[0], 1, 1)
    kinds: dict[str, Floats] = {
        "noise": rng.random((COUNT, *shape), np.float32),
        "blanks": np.broadcast_to(rng.random(channels, np.float32) / 2, (COUNT, *shape)),
        "letters": np.stack([_letter(rng, manifest) for _ in range(COUNT)]),
    }
    for dataset in (*DATASETS.values(), *NOVELTY_DATASETS.values()):
        if dataset.name != manifest.dataset and dataset.image_shape == shape:
            with suppress(DatasetError):  # its files are not there
                split: DataSplit = "train" if dataset.name in DATASETS else "test"
                others = load(dataset, split, data_dir, fetch=False).images
                chosen = rng.choice(len(others), min(COUNT, len(others)), replace=False)
                kinds[f"{dataset.kind} ({dataset.name})"] = scale(others[chosen])
    return kinds


def print_letter(letter: str, *, weight: int) -> Image.Image:
    """A letter in Pillow's font, white on black, its strokes widened by `weight` pixels."""
    picture = Image.new("L", (_CANVAS, _CANVAS))
    font, middle = ImageFont.load_default(_FONT), (_CANVAS / 2, _CANVAS / 2)
    ImageDraw.Draw(picture).text(middle, letter, 255, font, anchor="mm", stroke_width=weight)
    return picture


def _letter(rng: np.random.Generator, manifest: Manifest) -> Floats:
    """(C, H, W)."""
    letter = LETTERS[rng.integers(len(LETTERS))]
    picture = print_letter(letter, weight=int(rng.integers(0, 4)))
    turned = picture.rotate(rng.uniform(-_TURN_DEG, _TURN_DEG), Image.Resampling.BICUBIC)
    return prepare(turned, manifest.image_shape, rule=manifest.preprocess).image
