"""What a result keeps, so that it can be doubted: the digest of its recipe, and wrong images."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from typing import Any

import numpy as np

from research.rows import Row

_DIGITS = 12
_OFF = {"pose": "routed"}
"""Values of settings that were added later and change nothing."""


def recipe_digest(row: Row) -> str:
    """Return 12 hexadecimal digits of what a row is trained by, apart from seed and budget.

    Settings that are off (zero, empty, false or in `_OFF`) are left out. So a new setting that is
    off changes no digest.
    """
    recipe = row.recipe.to_dict()
    for decided_by_the_budget in ("name", "epochs"):
        del recipe[decided_by_the_budget]
    trained_by = {"recipe": recipe, "training_images": row.training_images}
    text = json.dumps(_without_off(trained_by), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


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


def _without_off(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if one and _OFF.get(key) != one}
        return {key: _without_off(one) for key, one in kept.items()}
    if isinstance(value, (list, tuple)):
        return [_without_off(one) for one in value]
    return value
