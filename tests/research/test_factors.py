"""Poses are compared with the factors that images were rendered from."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from model.preprocess import Floats
from research import factors
from research.__main__ import app
from research.factors import NAMES, compare_scaled, measure, measure_rows, table
from research.tables import ROWS
from training.data.assemblies import Factors, list_factors
from training.data.datasets import Dataset, Examples
from training.state import TrainingError


def draw(split: str, *, noise: bool) -> Examples:
    """Images of five pixels: sine and cosine of the azimuth, elevation, size and lamp, or noise."""
    known = list_factors(split)  # type: ignore[arg-type]
    images = draw_factors(known)
    if noise:
        images = np.random.default_rng(0).integers(27, 228, images.shape, np.uint8)
    return Examples(images, known.label)


def draw_factors(known: Factors, **_: Any) -> NDArray[np.uint8]:
    """Images of five pixels."""
    turn = np.radians(known.azimuth)
    columns = (np.sin(turn), np.cos(turn), known.elevation / 40 - 1.25, known.size, known.lamp / 5)
    images = np.rint(127 + 100 * np.stack(columns, axis=1)).astype(np.uint8)
    return images[:, None, None]


class Pixels(torch.nn.Module):
    """A network whose poses are the pixels."""

    def forward(self, images: torch.Tensor) -> SimpleNamespace:
        """The same pose for each of five classes."""
        return SimpleNamespace(poses=images.reshape(-1, 1, 5).repeat(1, 5, 1))


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


def measured(**more: Any) -> dict[str, Any]:
    """The same shares for all factors."""
    shares = {name: [0.5, 0.25] for name in NAMES}
    named = {"azimuth": 2, "elevation": 0, "size": 1, "lamp": 0}
    turn = {"turn": [0.1, 0.2]}
    return {"explained": shares, "turn": turn, "named": named, "dimensions": 80, **more}


def test_a_line_tells_what_was_measured() -> None:
    """Shares at familiar and at new azimuths, and how many dimensions follow a factor."""
    cells = " | ".join(["0.50, 0.25"] * 4)
    lines = table(
        {"ours": measured(scaled={"scaled": [0.518, 0.994]}), "others": measured()}
    ).splitlines()
    assert f"| ours | {cells} | 0.10, 0.20 | 0.52, 0.99 | azimuth 2, size 1 of 80 |" == lines[2]
    assert f"| others | {cells} | 0.10, 0.20 |  | azimuth 2, size 1 of 80 |" == lines[3]
    assert "Not run yet" in table({})


def test_lines_of_networks_that_are_not_there_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is measured again replaces its own line."""
    (tmp_path / factors.MEASURED).write_text(json.dumps({"gone": {"a": 1}, "here": {"a": 2}}))
    monkeypatch.setattr(factors, "measure_rows", lambda *_, **__: {"here": {"a": 3}})
    monkeypatch.setattr("research.__main__.write_page", lambda **_: None)
    folders = [f"--{name}={tmp_path}" for name in ("docs-dir", "runs-dir", "bundles")]
    assert 0 == CliRunner().invoke(app, ["factors", *folders]).exit_code
    assert {"gone": {"a": 1}, "here": {"a": 3}} == factors.read(tmp_path)


def test_a_pose_of_ink_grows_with_the_object_as_with_the_image() -> None:
    """Objects are seen without perspective, so a larger image is that of a larger object."""
    some = list_factors("test").at(np.arange(0, 24300, 4000))
    ink = compare_scaled(lambda images: images.sum(axis=(1, 2, 3))[:, None], some, size_px=48)
    assert (1, 1) == pytest.approx(ink, abs=0.02)


@pytest.mark.parametrize(("weights", "expected"), [((1, 0), 1), ((1, 1), 0.5), ((0, 1), 0)])
def test_the_view_misses_what_only_larger_objects_have(
    weights: tuple[int, int], expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A square grows in both; a mark in the corner is in the render alone. Both shrink well."""

    def render(known: Factors, *, size_px: int) -> NDArray[np.uint8]:
        is_large = known.size.max() > 1
        images = np.zeros((len(known.size), 1, size_px, size_px), np.uint8)
        images[..., slice(12, 36), slice(12, 36)] = 200 if is_large else 0
        images[..., slice(16, 32), slice(16, 32)] = 200
        images[..., 2, 2] = 200 if is_large else 0
        return images

    def encode(images: Floats) -> NDArray[np.float64]:
        return np.stack((images[:, 0, 24, 14], images[:, 0, 2, 2]), axis=1) * np.array(weights)

    monkeypatch.setattr(factors, "render_factors", render)
    found = compare_scaled(encode, list_factors("test").at(np.arange(3)), size_px=48)
    assert (expected, 1) == pytest.approx(found, abs=1e-6)


@pytest.mark.usefixtures("told")
def test_scaling_is_measured_of_networks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The view has no answer for principal components."""
    monkeypatch.setattr(factors, "render_factors", draw_factors)
    network: Any = Pixels()
    found = measure(network, Path(), "assemblies")
    assert found["explained"]["size"] == pytest.approx([1, 1], abs=0.02)
    assert 2 == len(found["scaled"]["scaled"])
    assert "scaled" not in measure(None, Path(), "assemblies")
