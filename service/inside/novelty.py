"""How much pictures look like those of the training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from model.bundle import Manifest
from model.interpret.novelty import measure_features
from service.inspector import Encoded, Inspector
from service.problems import InvalidParameter


@dataclass(frozen=True)
class Novelty:
    """How one picture compares with known ones; see `model.interpret.novelty`."""

    known: bool
    score: float
    """The lowest rank, from 0 to 1."""
    length_rank: float
    margin_rank: float
    error_rank: float
    error: float
    """Share of the image that the reconstruction of its longest capsule misses."""


async def score_novelty(
    inspector: Inspector, manifest: Manifest, images: list[Encoded]
) -> list[Novelty]:
    """Decode the longest capsule of each image, as one batch, and compare with known images.

    Raises:
        InvalidParameter: the bundle has no rule.
    """
    rule = manifest.novelty
    if rule is None:
        raise InvalidParameter(
            f"the bundle {manifest.name!r} has no novelty rule", parameter="known"
        )
    if not images:
        return []
    presence = np.stack([one.presence for one in images])
    labels = presence.argmax(axis=1)
    poses = np.stack([one.poses[label] for one, label in zip(images, labels, strict=True)])
    drawn = await inspector.engine.decode(manifest.name, poses, labels)
    features = measure_features(presence, np.stack([one.prepared.image for one in images]), drawn)
    ranks = rule.rank(features)
    return [
        Novelty(bool(score >= rule.threshold), float(score), *map(float, row))
        for score, *row in zip(ranks.score, *ranks, features.error, strict=True)
    ]
