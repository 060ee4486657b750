"""Read a bundle's folder, and verify that each file is the one that its manifest describes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from model.bundle.disk import open_file, read_json, replacing
from model.bundle.manifest import GraphRole, Manifest
from model.bundle.neighbours import PoseGallery
from model.bundle.novelty import PoseGaussians
from model.bundle.samples import SAMPLES, Sample, read_samples

MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
NOVELTY = "novelty.npz"
NEIGHBOURS = "neighbours.npz"
CARD = "CARD.md"
MAX_MANIFEST_BYTES = 2_000_000
MAX_GRAPH_BYTES = 4_000_000
"""A graph may have this many bytes. Its weights are in a file of their own."""
_VERSION_DIGITS = 12


class BundleError(Exception):
    """A bundle is missing, incomplete, altered or of another schema; the message names it."""


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk."""

    path: Path
    manifest: Manifest
    samples: tuple[Sample, ...] = ()
    """Pictures to try the network on, if the folder has any."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read a bundle's manifest and verify every file against it.

        Raises:
            BundleError: something is missing, altered or unreadable.
        """
        manifest = _read_manifest(path)
        _check_files(path, manifest)
        rule, classes, dim = manifest.novelty, manifest.num_classes, manifest.class_dim
        if rule and rule.distance:
            with _naming(path, NOVELTY):
                gaussians = PoseGaussians.load(path / NOVELTY)
            _check_poses(path / NOVELTY, gaussians.means.shape, (classes, classes * dim))
            manifest = replace(manifest, novelty=replace(rule, gaussians=gaussians))
        if manifest.neighbours:
            with _naming(path, NEIGHBOURS):
                gallery = PoseGallery.load(path / NEIGHBOURS)
            _check_poses(path / NEIGHBOURS, gallery.whitening.shape[:2], (classes, dim))
            manifest = replace(manifest, neighbours=replace(manifest.neighbours, gallery=gallery))
        with _naming(path, SAMPLES):
            samples = read_samples(path / SAMPLES, classes)
        return cls(path, manifest, samples)

    def graph(self, role: GraphRole) -> Path:
        """The file of a graph that the manifest names."""
        return self.path / self.manifest.graphs[role]


def _check_files(path: Path, manifest: Manifest) -> None:
    """Check that the manifest lists what the network needs, and that each file is as it says."""
    rule = manifest.novelty
    needed = {*manifest.graphs.values(), WEIGHTS}
    needed |= {NOVELTY} if rule and rule.distance else set()
    needed |= {NEIGHBOURS} if manifest.neighbours else set()
    missing = needed - manifest.sha256.keys()
    if missing:
        raise BundleError(f"{path}: the manifest does not list {', '.join(sorted(missing))}")
    for name, expected in manifest.sha256.items():
        if Path(name).name != name:
            raise BundleError(f"{path}: {name!r} lies outside the bundle")
        if digest(path / name, path) != expected:
            raise BundleError(f"{path}: {name} is not the file that the manifest describes")
    for name in manifest.graphs.values():
        if (path / name).stat().st_size > MAX_GRAPH_BYTES:
            raise BundleError(f"{path}: {name} has more than {MAX_GRAPH_BYTES:,} bytes")
    if manifest.version != version_of(manifest.sha256[WEIGHTS]):
        raise BundleError(f"{path}: version {manifest.version!r} is not that of its weights")


def version_of(weights_digest: str) -> str:
    """A bundle's version, from the SHA-256 of its weights."""
    return weights_digest[:_VERSION_DIGITS]


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write `path/manifest.json` in one step."""
    text = json.dumps(manifest.to_dict(), indent=2, ensure_ascii=False) + "\n"
    with replacing(path / MANIFEST) as file:
        file.write(text.encode())


def digest(file: Path, bundle: Path) -> str:
    """Return the SHA-256 of a bundle's file.

    Raises:
        BundleError: it cannot be read.
    """
    try:
        with open_file(file) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
    except OSError as error:
        raise BundleError(f"{bundle}: {file.name} cannot be read: {error.strerror}") from error


@contextmanager
def _naming(bundle: Path, *files: str) -> Iterator[None]:
    """Refuse a bundle where its file is at fault, and name both."""
    try:
        yield
    except ValueError as error:
        raise BundleError(": ".join((str(bundle), *files, str(error)))) from error


def _check_poses(file: Path, shape: tuple[int, ...], expected: tuple[int, int]) -> None:
    if shape != expected:
        raise BundleError(f"{file.parent}: {file.name} is of a network with other poses")


def _read_manifest(path: Path) -> Manifest:
    with _naming(path):
        values = read_json(path / MANIFEST, MAX_MANIFEST_BYTES)
    if not isinstance(values, dict):
        raise BundleError(f"{path}: {MANIFEST} is not a JSON object")
    with _naming(path, MANIFEST):
        return Manifest.from_dict(values)
