"""Sweeps over HTTP, of the bundles that ship."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

FOUR = Path(__file__).parents[3] / "service" / "samples" / "4.png"


@pytest.mark.parametrize(
    ("query", "by"),
    [
        ("", "direction"),
        ("?by=direction&scale=4", "direction"),
        ("?by=dimension", "dimension"),
        ("?dims=3&start=-0.1&stop=0.1", "dimension"),
    ],
)
def test_directions_are_the_default(shipped: httpx.Client, query: str, by: str) -> None:
    """A parameter of dimensions, or `by=dimension`, gives the paper's figure."""
    answer = shipped.post(f"/sweep{query}", files={"file": FOUR.read_bytes()}).json()
    assert by == answer["by"], answer
    assert bool(answer["directions"]) == (by == "direction")
