"""The arithmetic of docs/how-to/scale.md."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tests.deploy.test_kubernetes import measured_mib

PAGE = (Path(__file__).parents[1] / "docs" / "how-to" / "scale.md").read_text()
COSTS = {
    name: {"1": float(one), "32": float(many)}
    for name, one, many in re.findall(
        r"^\| `([\w-]+)` \| [\d,]+ \| [\d,]+ \| ([\d.]+) \| [\d,]+ \| ([\d.]+) \|$",
        PAGE,
        re.MULTILINE,
    )
}
"""Milliseconds of a picture, by bundle and pictures a request."""
DEMANDS = re.findall(
    r"^\| ([\d,]+) \| ([\d,]+) \| `([\w-]+)`, (\d+) \| (.+) = ([\d.]+) "
    r"\| (\d+) \| (\d+) \| (.+) GiB \|$",
    PAGE,
    re.MULTILINE,
)


@pytest.mark.parametrize("row", DEMANDS, ids=lambda row: f"{row[0]} {row[2]} {row[3]}")
def test_demands_are_computed_as_shown(row: tuple[str, ...]) -> None:
    """From pictures a minute to memory; each number is that of the table of costs."""
    minute, second, bundle, images, shown, cores, workers, pods, memory = row
    rate, cost = int(minute.replace(",", "")) / 60, COSTS[bundle][images]
    assert f"{rate:,.0f}" == second
    assert f"{second} x {cost} / 700" == shown
    assert f"{rate * cost / 700:.2f}" == cores
    assert math.ceil(round(rate * cost / 700, 2)) == int(workers)
    assert math.ceil(int(workers) / 2) == int(pods)
    pod = measured_mib("supervisor") + 2 * (measured_mib("each worker") + 50)
    assert f"{int(pods) * pod / 1024:.1f}" == memory


def test_all_demands_are_read() -> None:
    """The three that the page speaks of."""
    assert {"1,000", "100,000", "10,000,000"} == {row[0] for row in DEMANDS}
