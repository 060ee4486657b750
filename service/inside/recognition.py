"""Whether pictures look like something that the network knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from model.bundle import Manifest
from model.familiarity import read_signs
from service.inspector import Inspector, Reading
from service.problems import InvalidParameter


@dataclass(frozen=True)
class Recognition:
    """How familiar one picture is; see `model.familiarity` for what is compared."""

    known: bool
    score: float
    """The lowest rank, from 0 to 1."""
    length_rank: float
    margin_rank: float
    error_rank: float
    error: float
    """Share of the picture's ink that the drawing of its longest capsule misses."""


async def recognise(
    inspector: Inspector, manifest: Manifest, readings: list[Reading]
) -> list[Recognition]:
    """Draw the longest capsule of each picture, as one batch, and compare with known pictures.

    Raises:
        InvalidParameter: the bundle has no rule.
    """
    rule = manifest.known
    if rule is None:
        raise InvalidParameter(
            f"the bundle {manifest.name!r} does not say which pictures it knows", parameter="known"
        )
    if not readings:
        return []
    lengths = np.stack([one.lengths for one in readings])
    labels = lengths.argmax(axis=1)
    poses = np.stack([one.poses[label] for one, label in zip(readings, labels, strict=True)])
    drawn = await inspector.engine.decode(manifest.name, poses, labels)
    signs = read_signs(lengths, np.stack([one.prepared.image for one in readings]), drawn)
    ranks = rule.rank(signs)
    return [
        Recognition(bool(score >= rule.threshold), float(score), *map(float, row))
        for score, *row in zip(ranks.score, *ranks, signs.error, strict=True)
    ]
