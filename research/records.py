"""What a result keeps, so that it can be doubted: digests of recipe and code, and wrong images."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from research.rows import Row

_DIGITS = 12
_OFF = {"pose": "routed"}
"""Values of settings that were added later and change nothing."""
_ROOT = Path(__file__).parents[1]
_CODE = (
    "model/capsnet/**/*.py",
    "training/data/*.py",
    *(
        f"training/{name}.py"
        for name in ("device", "losses", "muon", "replay", "state", "tasks", "trainer")
    ),
    *(f"research/{name}.py" for name in ("controls", "protocols", "run")),
)
"""The modules that decide what a row scores."""


def recipe_digest(row: Row) -> str:
    """Return 12 hexadecimal digits of what a row is trained by, apart from seed and budget.

    Settings that are off (zero, empty, false or in `_OFF`) are left out. So a new setting that is
    off changes no digest.
    """
    recipe = row.recipe.to_dict()
    for decided_by_the_budget in ("name", "epochs"):
        del recipe[decided_by_the_budget]
    trained_by = {
        "recipe": recipe,
        "training_images": row.training_images,
        "hold_out": row.hold_out,
        "protocol": row.protocol,
        "stop_percent": row.stop_percent,
    }
    return _digest(json.dumps(_without_off(trained_by), sort_keys=True))


@cache
def code_digest() -> str:
    """Return 12 hexadecimal digits of the code that trains and tests rows.

    Comments, docstrings and layout do not count.
    """
    files = sorted({path for pattern in _CODE for path in _ROOT.glob(pattern)})
    return _digest("\n".join(_statements(path) for path in files))


def pack(images: list[int], count: int) -> str:
    """Pack indices of images, of `count` images, into a short text."""
    bits = np.zeros(count, bool)
    bits[images] = True
    return base64.b64encode(zlib.compress(np.packbits(bits).tobytes(), 9)).decode()


def unpack(text: str) -> list[int]:
    """Return the indices that `pack` packed.

    Raises:
        ValueError: the text is something else.
    """
    try:
        packed = zlib.decompress(base64.b64decode(text, validate=True))
    except zlib.error as error:
        raise ValueError(f"no packed images: {error}") from error
    return np.flatnonzero(np.unpackbits(np.frombuffer(packed, np.uint8))).tolist()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _without_off(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if one and _OFF.get(key) != one}
        return {key: _without_off(one) for key, one in kept.items()}
    if isinstance(value, (list, tuple)):
        return [_without_off(one) for one in value]
    return value


def _statements(path: Path) -> str:
    """A module's code without docstrings, in one layout."""
    tree = ast.parse(path.read_text())
    for node in _documented(tree):
        node.body = [one for one in node.body if not _is_docstring(one)] or [ast.Pass()]
    return ast.dump(tree)


def _documented(tree: ast.AST) -> Iterator[Any]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield node


def _is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is a string that nothing uses."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
