"""Gives bundles of tests training images, as the analysis gives them to trained ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from model.bundle import NEIGHBOURS, Bundle, digest, write_manifest
from model.bundle.neighbours import NeighbourImages, PoseGallery
from model.canvas import draw_sheet
from training.analysis.neighbours import make_gallery


def add_gallery(path: Path, gallery: PoseGallery) -> None:
    """Add a gallery to the bundle in a folder."""
    manifest = Bundle.open(path).manifest
    with (path / NEIGHBOURS).open("wb") as file:
        gallery.save(file)
    digests = {**manifest.sha256, NEIGHBOURS: digest(path / NEIGHBOURS, path)}
    said = NeighbourImages(f"{len(gallery.poses)} images", "CC0", "nobody")
    offers = tuple(dict.fromkeys((*manifest.offers, "neighbours")))
    write_manifest(path, replace(manifest, sha256=digests, neighbours=said, offers=offers))


def add_noise(path: Path) -> None:
    """Add two images of noise of each class, with poses of noise."""
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
