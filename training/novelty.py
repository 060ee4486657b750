"""Fit the novelty rule on images of the network's own kind alone, and draw images of other kinds.

What the rule makes of images of other kinds is reported; of those, noise and clothes chose `RIDGE`.
Coverage of label sets is promised for images like those of the calibration: images of other kinds,
and changed ones, show how it degrades.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from model.bundle import Manifest
from model.bundle.poses import NoveltyRule, PoseGaussians
from model.preprocess import Floats, prepare, scale
from model.runtime import Runtime
from model.views.novelty import find_lowest, flatten_poses, measure_features, rank, tabulate
from training.answers import BATCH, NO_CLASS, Answers, answer_images, as_floats, decode_classes
from training.data.datasets import DATASETS, NOVELTY_DATASETS, Examples, load
from training.data.source import DatasetError, DataSplit

CHANGED, COUNT = 2000, 1000
"""The number of images that are turned or made noisy, and that of each other kind."""
TURN_DEG, NOISE = 30, 0.2
"""The angle, and the standard deviation of the noise of each pixel, which are in [0, 1]."""
LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
"""All letters but I and O, which look like the digits 1 and 0."""
_CANVAS, _FONT, _LETTER_TURN_DEG = 96, 64, 15
_SEED = 13
Doubles = NDArray[np.float64]
Ranks = NDArray[np.float64]
TYPICAL_SHARE = 0.95
"""The share of images that are not novel, of those that set the threshold."""
RIDGE = 1e-3
"""The share of the mean variance that is added to variances; chosen on noise and clothes alone."""
MIN_IMAGES = 300
"""The fewest images of a rule. Half of them, drawn at random, set the threshold."""
_TAIL = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
QUANTILES = (*_TAIL, 0.5, *(round(1 - share, 4) for share in reversed(_TAIL)))


def answer_changed(runtime: Runtime, answers: Answers) -> dict[str, Answers]:
    """Answer up to CHANGED of the images, drawn at random: turned, and with noise.

    Turned photographs are mirrored at the edge, others are black there.
    """
    few = answers.draw(CHANGED, seed=_SEED)
    images = as_floats(few.images)
    noise = np.random.default_rng(_SEED).normal(0, NOISE, images.shape).astype(np.float32)
    edge = "reflect" if runtime.bundle.manifest.preprocess == "crop" else "constant"
    turned = scipy.ndimage.rotate(images, TURN_DEG, axes=(3, 2), reshape=False, order=1, mode=edge)
    changed = {
        f"turned by {TURN_DEG}°": np.asarray(turned.clip(0, 1), np.float32),
        f"with noise of {NOISE}": (images + noise).clip(0, 1),
    }
    return {
        kind: answer_images(runtime, Examples(shown, few.labels)) for kind, shown in changed.items()
    }


def answer_others(runtime: Runtime, data_dir: Path) -> dict[str, Answers]:
    """Draw and answer up to COUNT images of each kind that the network was not trained on.

    - noise: every pixel uniform in [0, 1];
    - blanks: one shade each, from black to half;
    - letters: capitals in Pillow's font, rotated a little, prepared as the service does it;
    - images of every other data set of the same shape whose files are in `data_dir`.
    """
    manifest, rng = runtime.bundle.manifest, np.random.default_rng(0)
    shape = manifest.image_shape
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
    return {
        kind: answer_images(runtime, Examples(images, np.full(len(images), NO_CLASS)))
        for kind, images in kinds.items()
    }


def _letter(rng: np.random.Generator, manifest: Manifest) -> Floats:
    """A letter in Pillow's font, white on black, of some weight and turn, as (C, H, W)."""
    letter, weight = LETTERS[rng.integers(len(LETTERS))], int(rng.integers(0, 4))
    picture, middle = Image.new("L", (_CANVAS, _CANVAS)), (_CANVAS / 2, _CANVAS / 2)
    font = ImageFont.load_default(_FONT)
    ImageDraw.Draw(picture).text(middle, letter, 255, font, anchor="mm", stroke_width=weight)
    degrees = rng.uniform(-_LETTER_TURN_DEG, _LETTER_TURN_DEG)
    turned = picture.rotate(degrees, Image.Resampling.BICUBIC)
    return prepare(turned, manifest.image_shape, rule=manifest.preprocess).image


def fit_novelty(
    runtime: Runtime, fitted: Answers, typical: Answers, *, described: str
) -> NoveltyRule:
    """Fit Gaussians and quantiles on some images, and the threshold on others of the same kind.

    A threshold of zero finds no image novel. So where the images are too few for the covariance,
    the rule goes without distances.

    Args:
        typical: the images of which TYPICAL_SHARE are not novel.
        described: what the images are, for the manifest.
    """
    for gaussians in (fit_gaussians(fitted.presence, fitted.poses), None):
        features = find_features(runtime, fitted, gaussians)
        tables: dict[str, Any] = {
            name: tabulate(values, QUANTILES) for name, values in features.items()
        }
        rule = NoveltyRule(
            QUANTILES, **tables, threshold=0.0, images=described, gaussians=gaussians
        )
        threshold = find_threshold(score_novelty(runtime, typical, rule))
        if threshold > 0:
            break
    return replace(rule, threshold=threshold)


def fit_gaussians(presence: Floats, poses: Floats) -> PoseGaussians:
    """Fit Gaussians to poses (N, K, D): a mean for each most present class, and one covariance.

    The whitening matrix is that of the covariance divided by its mean variance, so that it fits
    into 16 bits.
    """
    flat, classes = flatten_poses(presence, poses), presence.shape[1]  # (N, K * D)
    means, covariance = fit_classes(flat, presence.argmax(axis=1), classes)
    whitening = whiten(covariance / covariance.diagonal().mean())
    return PoseGaussians(means.astype(np.float32), whitening.astype(np.float16))


def fit_classes(
    values: Floats, labels: NDArray[np.integer], classes: int
) -> tuple[Doubles, Doubles]:
    """The mean (K, D) of each class of values (N, D), and their covariance (D, D) within classes.

    A class without values gets the mean of all.
    """
    exact = values.astype(np.float64)
    means = np.tile(exact.mean(axis=0), (classes, 1))
    for label in np.unique(labels):
        means[label] = exact[labels == label].mean(axis=0)
    return means, np.cov(exact - means[labels], rowvar=False, bias=True)


def whiten(covariance: Doubles) -> Doubles:
    """W (D, D), with W W^T the inverse of a covariance, to which RIDGE is added."""
    ridge = RIDGE * covariance.diagonal().mean() + 1e-12
    return np.asarray(
        np.linalg.inv(np.linalg.cholesky(covariance + ridge * np.eye(len(covariance)))).T
    )


def find_features(
    runtime: Runtime, answers: Answers, gaussians: PoseGaussians | None
) -> dict[str, Floats]:
    """The features of images."""
    parts = []
    for start in range(0, len(answers.images), BATCH):
        part = answers.at(slice(start, start + BATCH))
        decoded = decode_classes(runtime, part.poses, part.first[:, None])[:, 0]
        shown = as_floats(part.images)
        parts.append(measure_features(part.presence, part.poses, shown, decoded, gaussians))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def score_novelty(runtime: Runtime, answers: Answers, rule: NoveltyRule) -> Ranks:
    """Return the lowest rank (N,) of images: novel ones are below the threshold."""
    return find_lowest(rank(rule, find_features(runtime, answers, rule.gaussians)))


def find_threshold(ranks: Ranks) -> float:
    """The lowest rank that TYPICAL_SHARE of typical images reach, of ranks (N,)."""
    return tabulate(ranks, [1 - TYPICAL_SHARE])[0]


def compare_kinds(
    runtime: Runtime,
    rule: NoveltyRule,
    others: Mapping[str, Answers],
    typical: Ranks | None,
    described: str,
) -> NoveltyRule:
    """Score images of other kinds: the rule with what it makes of them.

    Args:
        typical: the lowest ranks (N,) of images that the network has not learnt; None where there
            are none, so that nothing is compared.
        described: what these are, for the manifest.
    """
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415  scikit-learn takes a second

    scores = list[dict[str, float | int | str]]()
    for kind, answers in others.items():
        ranks = score_novelty(runtime, answers, rule)
        score: dict[str, float | int | str] = {
            "kind": kind,
            "images": len(ranks),
            "known_percent": round(100 * float(np.mean(ranks >= rule.threshold)), 2),
        }
        if typical is not None:
            is_typical = np.arange(len(ranks) + len(typical)) >= len(ranks)
            auc = float(roc_auc_score(is_typical, np.concatenate((ranks, typical))))
            score |= {"auc": round(auc, 4), "typical": described}
        scores.append(score)
    return replace(rule, others=tuple(scores))
