"""Bundles that one test process exports, for all others and for the next run."""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock, Timeout

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("numpy", "onnx", "onnxruntime", "onnxscript", "torch")
_SOURCES = (
    *("model/bundle/*.py", "model/capsnet/**/*.py", "model/preprocess/*.py", "model/runtime/*.py"),
    *("model/outputs.py", "model/views/masks.py", "training/**/*.py"),
    *("tests/exports.py", "tests/model/capsnet/networks.py"),
)


_KEPT = 3
"""Versions of the sources whose bundles are kept, so that a change of branch exports nothing."""


class Store:
    """A folder of bundles, kept for as long as nothing changes that they depend on.

    Args:
        folder: shared by all test processes; bundles of the oldest sources in it are removed.
        exports: what writes each bundle, whole or not at all.
    """

    def __init__(self, folder: Path, exports: Mapping[str, Callable[[Path], object]]) -> None:
        current = _digest()
        self._folder = folder / current
        self._exports = exports
        with FileLock(folder / "lock"):
            self._folder.mkdir(exist_ok=True)
            self._folder.touch()
            versions = sorted(filter(Path.is_dir, folder.iterdir()), key=_modified)
            for old in versions[:-_KEPT]:
                shutil.rmtree(old)

    def copy(self, name: str, target: Path) -> Path:
        """Copy a bundle to a folder, and export it first if it is missing.

        While another process exports it, this one exports others that are missing.
        """
        others = iter(self._exports)
        while not self._export(name, wait=False):
            other = next(others, None)
            if other is None:
                self._export(name, wait=True)
            elif other != name:
                self._export(other, wait=False)
        return Path(shutil.copytree(self._folder / name, target))

    def _export(self, name: str, *, wait: bool) -> bool:
        """Export a bundle if it is missing; return False if another process does, without wait."""
        kept = self._folder / name
        if kept.exists():
            return True
        try:
            with FileLock(kept.with_suffix(".lock"), blocking=wait):
                if not kept.exists():
                    self._exports[name](kept)
        except Timeout:
            return False
        return True


def _modified(path: Path) -> float:
    return path.stat().st_mtime


def _digest() -> str:
    """Of code and versions that decide what is in a bundle.

    `KEPT_TEST_BUNDLES=NAME` takes its place, for work that changes nothing in bundles.
    """
    if chosen := os.environ.get("KEPT_TEST_BUNDLES"):
        return chosen
    said = hashlib.sha256(sys.version.encode())
    for package in _PACKAGES:
        said.update(f"{package} {version(package)}\n".encode())
    for pattern in _SOURCES:
        for path in sorted(_ROOT.glob(pattern)):
            said.update(_code(path).encode())
    return said.hexdigest()[:16]


def _code(path: Path) -> str:
    """What a module does: without comments, docstrings and layout."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [one for one in body if not _is_text(one)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
