"""Score how unlike the training images an image is, by a rule fitted on those alone.

Four features of each image are compared with those of the last training images:

- length: of the longest capsule;
- margin: longest minus second longest;
- error: |x - y|^2 / (|x|^2 + 1), how much of image x the reconstruction y of its longest capsule
  misses;
- distance: Mahalanobis distance of the poses of all classes from those of training images of the
  most present class (Lee et al. 2018, "A Simple Unified Framework for Detecting Out-of-Distribution
  Samples and Adversarial Attacks", equation 2, on poses in place of a hidden layer).

The rank of a feature is the share of the training images that are at least
as unusual in it (shorter, narrower, worse reconstructed, further away). An image is novel if its
lowest rank is below a threshold that 95 % of the training images reach. Its novelty score is one
minus that rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from model.bundle.poses import NoveltyRule, PoseGaussians
from model.outputs import Encoding
from model.preprocess import Floats
from model.views.answers import Part, is_none
from model.views.net import Net
from model.views.rivals import missed_share

Doubles = NDArray[np.float64]
_UNUSUAL_IF_LOW = ("length", "margin")


class NoveltyReport(Part):
    """The novelty scores of an image: how unlike the training images it is.

    Each score is the share of training images that are less unusual: 0.99 means 99 % of them.
    """

    novel: bool = Field(description="Whether 95 % of training images have a lower score.")
    score: float = Field(description="The highest of the four scores below.")
    length_score: float = Field(description="The score of the longest capsule's length.")
    margin_score: float = Field(
        description="The score of the longest capsule's lead over the second longest one."
    )
    error_score: float = Field(
        description="The score of the error of the longest capsule's reconstruction."
    )
    distance_score: float | None = Field(
        None,
        description="The score of the Mahalanobis distance of the poses.",
        exclude_if=is_none,
    )
    error: float = Field(
        description="Error of the reconstruction y of image x: sum((x-y)^2) / (sum(x^2) + 1)."
    )


def rank(rule: NoveltyRule, features: Mapping[str, Floats]) -> dict[str, Doubles]:
    """The share of the training images at least as unusual, (N,), for each feature."""
    ranks = {}
    for name, values in features.items():
        lower = np.interp(values, getattr(rule, name), rule.quantiles)
        ranks[name] = lower if name in _UNUSUAL_IF_LOW else 1 - lower
    return ranks


def find_lowest(ranks: Mapping[str, Doubles]) -> Doubles:
    """The lowest of an image's ranks, (N,)."""
    return np.asarray(np.min(list(ranks.values()), axis=0))


def score_images(rule: NoveltyRule, features: Mapping[str, Floats]) -> list[NoveltyReport]:
    """Compare images with the training images, one by one, rounded to six digits."""
    ranks = rank(rule, features)
    lowest = find_lowest(ranks)
    scores = {"score": lowest, **{f"{name}_score": ranked for name, ranked in ranks.items()}}
    columns = {name: (1 - ranked).round(6).tolist() for name, ranked in scores.items()}
    columns["novel"] = (lowest < rule.threshold).tolist()
    columns["error"] = features["error"].astype(float).round(6).tolist()
    rows = zip(*columns.values(), strict=True)
    return [NoveltyReport(**dict(zip(columns, row, strict=True))) for row in rows]


async def score_encoded(
    net: Net, images: Floats, encoding: Encoding[Floats]
) -> list[NoveltyReport]:
    """The novelty of N images (C, H, W), their longest capsules decoded as one batch.

    The bundle has a novelty rule.
    """
    rule = net.manifest.novelty
    assert rule
    labels = encoding.presence.argmax(axis=1)
    longest = encoding.poses[np.arange(len(labels)), labels]
    decoded = await net.decode(longest, labels)
    return score_images(rule, measure_features(*encoding, images, decoded, rule.gaussians))


def measure_distances(gaussians: PoseGaussians, presence: Floats, poses: Floats) -> Floats:
    """Measure Mahalanobis distances (N,), up to a factor, of poses (N, K, D) by presence (N, K)."""
    away = flatten_poses(presence, poses) - gaussians.means[presence.argmax(axis=1)]
    return np.asarray(np.linalg.norm(away @ gaussians.whitening, axis=1))


def measure_features(
    presence: Floats,
    poses: Floats,
    images: Floats,
    decoded: Floats,
    gaussians: PoseGaussians | None,
) -> dict[str, Floats]:
    """The features of N images, (N,) each, by name. There is no distance without Gaussians.

    Args:
        presence: (N, K) of all class capsules.
        poses: (N, K, D), likewise.
        images: (N, C, H, W) as the network saw them.
        decoded: (N, C, H, W), poses of the longest capsules, decoded.
        gaussians: the Gaussians from which distances are measured; None if none are measured.
    """
    second, first = np.partition(presence, -2, axis=1)[:, -2:].T
    error = missed_share(images, decoded)
    features = {"length": first, "margin": first - second, "error": error}
    if gaussians:
        features["distance"] = measure_distances(gaussians, presence, poses)
    return features


def flatten_poses(presence: Floats, poses: Floats) -> Floats:
    """Flatten poses (N, K, D) to (N, K * D), each scaled to its class's presence.

    Scaling changes only the poses of matrix capsules, because those do not show the presence.
    """
    sizes = np.linalg.norm(poses, axis=2)
    scaled = poses * (presence / np.maximum(sizes, np.finfo(np.float32).tiny))[..., None]
    return np.asarray(scaled.reshape(len(poses), -1))


def tabulate(values: NDArray[np.floating], quantiles: Sequence[float]) -> tuple[float, ...]:
    """The values at some quantiles, rounded to six digits."""
    return tuple(float(f"{value:.6g}") for value in np.quantile(values, quantiles))
