"""Change the manifest of a finished bundle, also where several processes do so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import BinaryIO, Protocol

from model.bundle import Bundle, BundleError, Manifest, digest, write_manifest
from model.bundle.atomic_file import replacing
from training.provenance import lock


class Content(Protocol):
    """The content of a file of a bundle."""

    def save(self, file: BinaryIO) -> None:
        """Write the file."""


def update_manifest(
    bundle: Bundle,
    change: Callable[[Manifest], Manifest],
    files: Mapping[str, Content] | None = None,
) -> Bundle:
    """Read a bundle's manifest again, change it and write it, while no other process does.

    Args:
        bundle: as it was opened; what is written starts from what is on disk now.
        change: gives the new manifest, all except the digests of `files`.
        files: to write into the bundle, by file name.

    Raises:
        BundleError: the bundle's weights were replaced since it was opened, or it is damaged.
    """
    path = bundle.path
    with lock(path.parent):
        now = Bundle.open(path)
        if now.manifest.version != bundle.manifest.version:
            raise BundleError(f"{path}: the weights were replaced meanwhile")
        digests = dict(now.manifest.sha256)
        for name, content in (files or {}).items():
            with replacing(path / name) as file:
                content.save(file)
            digests[name] = digest(path / name, path)
        changed = replace(change(now.manifest), sha256=digests)
        write_manifest(path, changed)
    return replace(now, manifest=changed)
