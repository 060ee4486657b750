"""What training adds to bundles: directions, health, confidence and galleries, made for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.bundle import NEIGHBOURS, Bundle, digest, write_manifest
from model.bundle.confidence import Confidence
from model.bundle.directions import RANKS, Direction, Quality, Reading
from model.bundle.health import CapsuleHealth, CouplingHealth, Health
from model.bundle.poses import NeighbourImages, PoseGallery
from model.canvas import draw_sheet

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

CONFIDENCE = Confidence(
    images="none",
    count=100,
    input="presence",
    temperature=30.0,
    method="temperature",
    coverages=(0.5, 0.9, 0.99),
    thresholds=((0.3, 0.1, 0.0),),
)


def add_health(path: Path) -> None:
    """Add HEALTH to the bundle in a folder."""
    write_manifest(path, replace(Bundle.open(path).manifest, health=HEALTH))


def make_direction(
    label: int,
    name: str = "slant",
    *,
    dim: int = 3,
    dims: int = 16,
    got: float = 1,
    same_way: float = 1,
    largest_other: float = 0,
    std: float = 10,
) -> Direction:
    """One degree moves one dimension by 0.01; the reading is the same backwards, R² 0.9.

    The class has values from -20 to 20.
    """
    vector, weights = np.zeros(dims), np.zeros(dims)
    vector[dim], weights[dim] = 0.01, 100
    return Direction(
        label=label,
        name=name,
        unit="degrees" if name == "slant" else "px",
        vector=tuple(vector.tolist()),
        std=std,
        quantiles=tuple(np.linspace(-20, 20, len(RANKS)).tolist()),
        quality=Quality(got=got, spread=0.1, same_way=same_way, largest_other=largest_other),
        reading=Reading(intercept=2, weights=tuple(weights.tolist()), r2=0.9, mean_error=1.5),
        offset=0.5,
    )


def add_gallery(path: Path, gallery: PoseGallery) -> None:
    """Add a gallery to the bundle in a folder."""
    manifest = Bundle.open(path).manifest
    with (path / NEIGHBOURS).open("wb") as file:
        gallery.save(file)
    digests = {**manifest.sha256, NEIGHBOURS: digest(path / NEIGHBOURS)}
    said = NeighbourImages(f"{len(gallery.poses)} images", "CC0", "nobody")
    offers = tuple(dict.fromkeys((*manifest.offers, "neighbours")))
    write_manifest(path, replace(manifest, sha256=digests, neighbours=said, offers=offers))


def add_noise(path: Path) -> None:
    """Add two images of noise of each class, with poses of noise."""
    from training.analysis.neighbours import make_gallery  # noqa: PLC0415  of the extra `training`

    manifest, rng = Bundle.open(path).manifest, np.random.default_rng(0)
    classes, dim = manifest.num_classes, manifest.class_dim
    images: NDArray[np.uint8] = rng.integers(0, 256, (2 * classes, *manifest.image_shape), np.uint8)
    gallery = make_gallery(
        poses=rng.standard_normal((2 * classes, dim)).astype(np.float16),
        labels=np.arange(2 * classes) % classes,
        images=np.arange(2 * classes),
        whitening=np.eye(dim, dtype=np.float16)[None].repeat(classes, 0),
        sheet=np.frombuffer(draw_sheet(images), np.uint8),
    )
    add_gallery(path, gallery)
