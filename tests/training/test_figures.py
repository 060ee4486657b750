from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from model.bundle import Bundle
from model.outputs import Encoding
from model.runtime import Runtime
from training.answers import WrongAnswers
from training.data.datasets import DIGITS, Examples
from training.figures import (
    MAX_WRONG,
    draw_curves,
    draw_roc,
    draw_routing,
    draw_sweeps,
    draw_wrong,
)

BLUE = (31, 119, 180)
"""The first line of a chart."""
GREY = 90


def pixels(path: Path) -> np.ndarray:
    """(H, W, 3) of a small file."""
    assert path.stat().st_size < 100_000
    with Image.open(path) as picture:
        assert "PNG" == picture.format
        return np.asarray(picture.convert("RGB")).astype(int)


def share(picture: np.ndarray, colour: tuple[int, int, int]) -> float:
    """Of the pixels, those of nearly this colour."""
    return float((np.abs(picture - colour).max(axis=2) < 12).mean())


def rectangles(mask: np.ndarray) -> int:
    """How many filled rectangles there are of at least 12x12 pixels: their upper left corners."""
    full = np.lib.stride_tricks.sliding_window_view(np.pad(mask, 1), (12, 12)).all(axis=(2, 3))
    return int((full[1:, 1:] & ~full[:-1, 1:] & ~full[1:, :-1]).sum())


def wrong_answers(count: int, channels: int = 1) -> WrongAnswers:
    """Plain grey images, all called 1 in place of 0."""
    return WrongAnswers(
        np.full((count, channels, 28, 28), GREY, np.uint8),
        np.zeros((count, 1), np.int64),
        np.ones((count, 1), np.int64),
        np.full((count, 2), 0.5, np.float32),
    )


@pytest.mark.parametrize(("count", "channels"), [(1, 1), (7, 3), (MAX_WRONG + 1, 1)])
def test_every_wrong_image_is_drawn(count: int, channels: int, tmp_path: Path) -> None:
    """Each as large as the others, up to so many."""
    draw_wrong(wrong_answers(count, channels), DIGITS, tmp_path / "wrong.png")
    drawn = (np.abs(pixels(tmp_path / "wrong.png") - GREY) < 5).all(axis=2)
    assert min(count, MAX_WRONG) == rectangles(drawn)


def test_images_keep_their_colours(tmp_path: Path) -> None:
    """Red is drawn red."""
    wrong = wrong_answers(1, 3)
    wrong.images[:, 0] = 255
    draw_wrong(wrong, DIGITS, tmp_path / "wrong.png")
    assert 0 < share(pixels(tmp_path / "wrong.png"), (255, GREY, GREY))


def test_all_that_a_run_measured_is_drawn(tmp_path: Path) -> None:
    """A panel for each loss, the validation error and the learning rate; nothing else."""
    lines = [
        {"step": n, "epoch": n, "images_per_s": 9, "spread_loss": 1 / n, "learning_rate": 1 / n}
        for n in range(1, 5)
    ]
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    draw_curves(metrics, tmp_path / "two.png", title="run")
    error = {"step": 4, "epoch": 4, "validation_error_percent": 2.5}
    metrics.write_text(metrics.read_text() + json.dumps(error) + "\n")
    draw_curves(metrics, tmp_path / "three.png", title="run")
    two, three = (pixels(tmp_path / f"{name}.png") for name in ("two", "three"))
    assert 3 * len(two) == 2 * len(three)
    assert 0 < share(two, BLUE)


def test_a_run_without_measurements_has_an_empty_picture(tmp_path: Path) -> None:
    """The card of a run that was too short for its log shows that."""
    (tmp_path / "metrics.jsonl").touch()
    draw_curves(tmp_path / "metrics.jsonl", tmp_path / "none.png", title="run")
    assert 0 == share(pixels(tmp_path / "none.png"), BLUE)


def test_routing_and_roc_curves_are_drawn(tmp_path: Path) -> None:
    """A line each."""
    changes = np.linspace(1, 0, 9, dtype=np.float32)
    draw_routing({"logit": changes, "coupling": changes}, tmp_path / "routing.png", title="nine")
    draw_roc({"noise": (np.linspace(0, 1, 9), np.linspace(0, 1, 9))}, tmp_path / "roc.png")
    for name in ("routing", "roc"):
        assert 0 < share(pixels(tmp_path / f"{name}.png"), BLUE)


@pytest.mark.parametrize("name", ["bundle_path", "colour_bundle_path"])
def test_sweeps_of_two_classes_stand_side_by_side(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Grey or colour, twice as wide as one of them."""
    runtime = Runtime(Bundle.open(request.getfixturevalue(name)), device="cpu", threads=1)
    manifest = runtime.bundle.manifest
    shape = (2, *manifest.image_shape)
    examples = Examples(
        np.random.default_rng(0).integers(0, 256, shape, np.uint8), np.array([1, 2])
    )
    draw_sweeps(runtime, manifest, examples, [1], tmp_path / "one.png")
    draw_sweeps(runtime, manifest, examples, [1, 2], tmp_path / "two.png")
    one, two = (pixels(tmp_path / f"{count}.png") for count in ("one", "two"))
    assert 2 * one.shape[1] == pytest.approx(two.shape[1], rel=0.1)


def test_poses_of_any_size_are_swept(runtime: Runtime, tmp_path: Path) -> None:
    """What a request may ask for is no limit: a row for each of 24 dimensions."""
    manifest = replace(runtime.bundle.manifest, class_dim=24)
    network: Any = SimpleNamespace(
        encode=lambda images: Encoding(images[:, 0, 0, :10], np.zeros((1, 10, 24), np.float32)),
        decode=lambda poses, _: np.zeros((len(poses), *manifest.image_shape), np.float32),
    )
    images = Examples(np.zeros((1, *manifest.image_shape), np.uint8), np.array([1]))
    draw_sweeps(network, manifest, images, [1], tmp_path / "sweep.png")
    assert 24 * manifest.height < len(pixels(tmp_path / "sweep.png"))
