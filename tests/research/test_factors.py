"""Poses are compared with the factors that images were rendered from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from research import factors
from research.factors import NAMES, measure, measure_rows, table
from research.tables import ROWS
from training.data.assemblies import list_factors
from training.data.datasets import Dataset, Examples
from training.state import TrainingError


def draw(split: str, *, noise: bool) -> Examples:
    """Images of five pixels: sine and cosine of the azimuth, elevation, size and lamp, or noise."""
    known = list_factors(split)  # type: ignore[arg-type]
    turn = np.radians(known.azimuth)
    columns = (np.sin(turn), np.cos(turn), known.elevation / 40 - 1.25, known.size, known.lamp / 5)
    pixels = np.stack(columns, axis=1)
    if noise:
        pixels = np.random.default_rng(0).uniform(-1, 1, pixels.shape)
    images = np.rint(127 + 100 * pixels).astype(np.uint8)
    return Examples(images[:, None, None], known.label)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that tell every factor."""

    def load(_: Dataset, split: str, __: Path) -> Examples:
        return draw(split, noise=False)

    monkeypatch.setattr(factors, "load", load)


@pytest.mark.usefixtures("told")
def test_factors_in_poses_are_explained() -> None:
    """On new instances at familiar and at new azimuths; a turn is a rotation, thus linear."""
    found = measure(None, Path(), "assemblies")
    for name in ("azimuth", "elevation", "size"):
        assert found["explained"][name] == pytest.approx([1, 1], abs=0.02)
    assert found["turn"]["turn"] == pytest.approx([1, 1], abs=0.05)
    assert found["named"]["elevation"] >= 1


def test_noise_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor has a dimension a name."""
    monkeypatch.setattr(factors, "load", lambda _, split, __: draw(split, noise=True))
    found = measure(None, Path(), "assemblies")
    assert all(share < 0.02 for name in NAMES for share in found["explained"][name])
    assert dict.fromkeys(NAMES, 0) == found["named"]


def test_rows_have_to_run_first(tmp_path: Path) -> None:
    """Poses are those of finished runs."""
    row = ROWS["matched-assemblies-attention-routed"]
    with pytest.raises(TrainingError, match="run them first"):
        measure_rows(
            [row],
            [1],
            runs={(row.name, 1): tmp_path},
            data_dir=tmp_path,
            bundles=tmp_path,
        )


def test_a_line_tells_what_was_measured() -> None:
    """Shares at familiar and at new azimuths, and how many dimensions have a name."""
    shares = {name: [0.5, 0.25] for name in NAMES}
    named = {"azimuth": 2, "elevation": 0, "size": 1, "lamp": 0}
    one = {"explained": shares, "turn": {"turn": [0.1, 0.2]}, "named": named, "dimensions": 80}
    cells = " | ".join(["0.50, 0.25"] * 4)
    expected = f"| ours | {cells} | 0.10, 0.20 | azimuth 2, size 1 of 80 |"
    assert expected == table({"ours": one}).splitlines()[2]
    assert "Not run yet" in table({})
