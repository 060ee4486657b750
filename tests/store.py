"""Bundles that one test process exports, for all others and for the next run."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("numpy", "onnx", "onnxruntime", "onnxscript", "torch")
_SOURCES = (
    *("model/bundle/*.py", "model/capsnet/**/*.py", "model/preprocess/*.py", "model/runtime/*.py"),
    *("model/outputs.py", "model/views/masks.py", "training/**/*.py"),
    *("tests/exports.py", "tests/model/capsnet/networks.py"),
)


class Store:
    """A folder of bundles, kept for as long as nothing changes that they depend on.

    Args:
        folder: shared by all test processes; bundles of other sources in it are removed.
    """

    def __init__(self, folder: Path) -> None:
        current = _digest()
        self._folder = folder / current
        with FileLock(folder / "lock"):
            self._folder.mkdir(exist_ok=True)
            for old in folder.iterdir():
                if old.is_dir() and old.name != current:
                    shutil.rmtree(old)

    def copy(self, name: str, target: Path, export: Callable[[Path], object]) -> Path:
        """Copy a bundle to a folder; `export` writes it, whole or not at all, if it is missing."""
        kept = self._folder / name
        with FileLock(kept.with_suffix(".lock")):
            if not kept.exists():
                export(kept)
        return Path(shutil.copytree(kept, target))


def _digest() -> str:
    """Of sources and versions that decide what is in a bundle."""
    said = hashlib.sha256(sys.version.encode())
    for package in _PACKAGES:
        said.update(f"{package} {version(package)}\n".encode())
    for pattern in _SOURCES:
        for path in sorted(_ROOT.glob(pattern)):
            said.update(path.read_bytes())
    return said.hexdigest()[:16]
