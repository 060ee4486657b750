"""Compares answers, whose last digits depend on the batch that a row was computed in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Where two answers differ by more than rounding."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key, value in one.items():
            yield from differences(value, other[key], f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, f"{path}[{place}]")
    elif one != (pytest.approx(other, abs=1e-4) if isinstance(other, int | float) else other):
        yield f"{path}: {one} and {other}"
