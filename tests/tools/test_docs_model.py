from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import model

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "load.md"


@pytest.mark.parametrize("name", sorted(path.name for path in model.SHIPPED.glob("*/")))
def test_sizes_in_the_reference_are_those_of_a_trace(name: str) -> None:
    """Of two images of each bundle that ships, in hidden layers too."""
    (row,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |")]
    loaded = model.load(name, device="cpu", threads=1)
    image = loaded.bundle.manifest.image_shape
    trace = loaded.trace(np.zeros((2, *image), np.float32))
    count, iterations, classes, capsules = trace.classes.couplings.shape
    assert (2, classes, capsules) == (count, *trace.classes.votes.shape[1:3])
    hidden = [
        f"`{layer}`: {types}, {maps}, {rows}, {columns}, {own}"
        for layer, (couplings, presence) in trace.hidden.items()
        for own, maps, types in [couplings.shape[1:]]
        for rows, columns in [presence.shape[3:]]
    ]
    sizes = (classes, trace.classes.poses.shape[3], capsules, iterations)
    cells = [f"`{name}`", ", ".join(map(str, image)), *map(str, sizes), "; ".join(hidden)]
    assert f"| {' | '.join(cells)} |" == row
