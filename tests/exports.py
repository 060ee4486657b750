"""Bundles of untrained and of tiny trained networks, exported once for all test processes."""

from __future__ import annotations

import ast
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from model.capsnet import Network, NetworkConfig, build
from model.capsnet.attention import AttentionConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.stem import Conv
from tests.model.capsnet.networks import TINY
from training.data.datasets import DIGITS, Examples
from training.data.pairs import fixed_pairs
from training.export import describe, export_bundle, replacing_folder
from training.recipes import Recipe
from training.state import Plan
from training.trainer import Trainer
from training.training_data import MAX_PX

BLOCKS = AttentionConfig(
    channels=3,
    height=24,
    width=32,
    num_classes=3,
    stem=(Conv(8, 5, 2), Conv(16, 5, 2)),
    primary="spatial",
    decoder_hidden=(16, 16),
)
"""Of `blocks`: colour photographs of 24x32 pixels."""
LARGE = replace(
    BLOCKS,
    height=MAX_PX,
    width=MAX_PX,
    stem=(Conv(8, 5, 4), Conv(16, 5, 4)),
    decoder_hidden=(16,),
    decoder_channels=(16, 8, 8, 4, 4),
    decoder_doublings=1,
)
"""Of `large`: the largest pictures that a folder may have."""
BANDS = replace(BLOCKS, channels=5, height=20, width=24)
"""Of `bands`: arrays of five channels."""


with suppress(ImportError, AttributeError):  # torch parses all operators for each graph; here once
    _APIS = import_module("torch.onnx._internal._lazy_import").onnxscript_apis
    _APIS.get_torchlib_ops = cache(_APIS.get_torchlib_ops)


def make_untrained(config: NetworkConfig) -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build(config).eval()


def export(config: NetworkConfig, target: Path, **facts: Any) -> None:
    """Write the bundle of an untrained network, its rounding measured on noise."""
    noise = np.random.default_rng(0).integers(0, 256, (4, *config.image_shape), np.uint8)
    name, validation = target.name, Examples(noise, np.zeros(4, np.int64))
    facts = {"dataset": name, "class_names": DIGITS, "preprocess": "digit", **facts}
    facts["training"] = {"recipe": Recipe(name, network=config).to_dict(), "runs": []}
    network = make_untrained(config)
    manifest = describe(network, name=name, **facts)
    with replacing_folder(target) as folder:
        export_bundle(network, manifest, folder, validation=validation)


def strokes() -> Examples:
    """Three 28x28 images that cross: a horizontal, a vertical and a diagonal stroke."""
    images = np.zeros((3, 1, 28, 28), np.uint8)
    images[0, 0, 12:16, 4:24] = 255
    images[1, 0, 4:24, 12:16] = 255
    for offset in range(-2, 3):
        rows = np.arange(5, 23)
        images[2, 0, rows, rows + offset] = 255
    return Examples(images, np.arange(3))


def train_strokes(target: Path) -> None:
    """Train a network that takes pairs of strokes apart, and write its bundle."""
    examples = strokes()
    network = DynamicConfig(
        height=36,
        width=36,
        stem=(Conv(8, 9, 2),),
        primary_types=4,
        primary_dim=4,
        num_classes=3,
        class_dim=8,
        decoder_hidden=(32, 64),
    )
    recipe = Recipe(
        "strokes",
        dataset="strokes",
        task="pairs",
        network=network,
        epochs=0.04,
        batch_size=16,
        learning_rate=5e-3,
        mse_weight=12.96,
    )
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng():
        plan = Plan(recipe, 1, examples, None, Path(folder))
        trainer = Trainer(plan, device=torch.device("cpu"))
        for _ in range(trainer.total_steps):
            trainer.step()
    pairs = fixed_pairs(examples, 50, size=36, shift_px=2, seed=1)
    manifest = describe(
        trainer.network,
        name="strokes",
        dataset="strokes",
        class_names=("horizontal", "vertical", "diagonal"),
        preprocess="pair",
        mask_threshold=0.36,
        training={"recipe": recipe.to_dict(), "runs": []},
    )
    with replacing_folder(target) as folder:
        export_bundle(trainer.network, manifest, folder, validation=pairs)


_COLOURS: dict[str, Any] = {"class_names": ("red", "green", "blue"), "preprocess": "crop"}
_SIZED = {"blocks": BLOCKS, "large": LARGE, "bands": BANDS}
EXPORTS: dict[str, Callable[[Path], object]] = {
    "mnist": partial(export, TINY["dynamic"]),
    "tiny-matrix": partial(export, TINY["matrix"]),
    "strokes": train_strokes,
    **{name: partial(export, config, **_COLOURS) for name, config in _SIZED.items()},
    **{
        f"tiny-{name}": partial(export, TINY[name])
        for name in TINY
        if name not in {"dynamic", "matrix"}
    },
}
"""What writes each bundle of the tests; most of them wait for `mnist`."""


# where they are kept

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("numpy", "onnx", "onnxruntime", "onnxscript", "torch")
_SOURCES = (
    *("model/bundle/*.py", "model/capsnet/**/*.py", "model/preprocess/*.py", "model/runtime/*.py"),
    *("model/outputs.py", "model/pairs.py", "training/**/*.py"),
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
