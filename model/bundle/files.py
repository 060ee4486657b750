"""Read a bundle's folder, and verify that each file is the one that its manifest describes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from model.bundle.disk import open_file, read_json, replacing
from model.bundle.entry import describe_fault
from model.bundle.manifest import GraphRole, Manifest
from model.bundle.poses import NEIGHBOURS, NOVELTY, PoseGallery, PoseGaussians
from model.bundle.samples import SAMPLES, Sample, read_samples

MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
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
        try:
            values = read_json(path / MANIFEST, MAX_MANIFEST_BYTES)
            manifest = Manifest.from_dict(values)
            _check_files(path, manifest)
            novelty, neighbours = manifest.novelty, manifest.neighbours
            if novelty and novelty.distance:
                novelty = replace(novelty, gaussians=PoseGaussians.load(path / NOVELTY))
            if neighbours:
                neighbours = replace(neighbours, gallery=PoseGallery.load(path / NEIGHBOURS))
            manifest = replace(manifest, novelty=novelty, neighbours=neighbours)
            return cls(path, manifest, read_samples(path / SAMPLES, manifest.num_classes))
        except ValueError as error:
            raise BundleError(f"{path}: {describe_fault(error)}") from error

    def graph(self, role: GraphRole) -> Path:
        """The file of a graph that the manifest names."""
        return self.path / self.manifest.graphs[role]


def _check_files(path: Path, manifest: Manifest) -> None:
    """Check that the manifest lists what the network needs, and that each file is as it says."""
    needed = {*manifest.graphs.values(), WEIGHTS}
    needed |= {NOVELTY} if manifest.novelty and manifest.novelty.distance else set()
    needed |= {NEIGHBOURS} if manifest.neighbours else set()
    if missing := needed - manifest.sha256.keys():
        raise ValueError(f"the manifest does not list {', '.join(sorted(missing))}")
    for name, expected in manifest.sha256.items():
        if Path(name).name != name:
            raise ValueError(f"{name!r} lies outside the bundle")
        if digest(path / name) != expected:
            raise ValueError(f"{name} is not the file that the manifest describes")
    for name in manifest.graphs.values():
        if (path / name).stat().st_size > MAX_GRAPH_BYTES:
            raise ValueError(f"{name} has more than {MAX_GRAPH_BYTES:,} bytes")
    if manifest.version != version_of(manifest.sha256[WEIGHTS]):
        raise ValueError(f"version {manifest.version!r} is not that of its weights")


def version_of(weights_digest: str) -> str:
    """A bundle's version, from the SHA-256 of its weights."""
    return weights_digest[:_VERSION_DIGITS]


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write `path/manifest.json` in one step."""
    text = json.dumps(manifest.to_dict(), indent=2, ensure_ascii=False) + "\n"
    with replacing(path / MANIFEST) as file:
        file.write(text.encode())


def digest(file: Path) -> str:
    """Return the SHA-256 of a bundle's file.

    Raises:
        BundleError: it cannot be read.
    """
    try:
        with open_file(file) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
    except OSError as error:
        raise BundleError(f"{file.parent}: {file.name} cannot be read: {error.strerror}") from error
