"""Health and calibration of a network, as the analysis gives them to trained ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from model.bundle import Bundle, write_manifest
from model.bundle.confidence import Confidence
from model.bundle.health import CapsuleHealth, CouplingHealth, Health

HEALTH = Health(
    images="none",
    count=3,
    capsules=(CapsuleHealth("classes", 10, 20.0, 0.1),),
    couplings=(CouplingHealth("classes", (1.0, 0.9), (0.0, 0.2), 0.1, 0.3),),
    parse_trees=1.5,
    images_per_class=3.0,
    negated_changed_percent=0.0,
    negated_presence_change=0.0,
    effective_dims=4.0,
    class_dim=16,
)


def add_health(path: Path) -> None:
    """Add it to the bundle in a folder."""
    write_manifest(path, replace(Bundle.open(path).manifest, health=HEALTH))


CONFIDENCE = Confidence(
    images="none",
    count=100,
    input="presence",
    temperature=30.0,
    method="temperature",
    coverages=(0.5, 0.9, 0.99),
    thresholds=((0.3, 0.1, 0.0),),
)
