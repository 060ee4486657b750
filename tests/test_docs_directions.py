"""The table of directions in the documentation is that of the bundles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from model.bundle import Bundle
from model.bundle.directions import Direction

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "directions.md"
BUNDLES = ("mnist-attention", "cifar10")


def rows(name: str) -> Iterator[str]:
    """The rows of a bundle: its measured directions, with the means over the classes they suit."""
    manifest = Bundle.open(ROOT / "model" / "bundles" / name).manifest
    shown = f"`{name}`"
    for measure in dict.fromkeys(one.name for one in manifest.directions if one.share is None):
        suited = [one for one in manifest.directions if one.name == measure and one.offered]
        if suited:
            yield f"| {shown} | {measure} | {describe(suited, len(manifest.class_names))} |"
            shown = ""


def describe(suited: list[Direction], classes: int) -> str:
    """The other columns of a row."""

    def mean(values: list[float]) -> float:
        return float(np.mean(values))

    got = mean([one.quality.got for one in suited])
    spread = mean([one.quality.spread for one in suited])
    other = max(one.quality.largest_other for one in suited)
    r2 = mean([one.reading.r2 for one in suited])
    error = mean([one.reading.mean_error for one in suited])
    return (
        f"{len(suited)} of {classes} | {got:.2f} ± {spread:.2f} | {other:.2f} | {r2:.2f} | "
        f"{error:.2g} {suited[0].unit}".rstrip()
    )


def test_the_table_is_that_of_the_bundles() -> None:
    """Every direction that ships, in the order of the bundles."""
    expected = [row for name in BUNDLES for row in rows(name)]
    table = [line for line in PAGE.read_text().splitlines() if " ± " in line]
    assert expected == table
