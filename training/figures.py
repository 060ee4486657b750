"""Draw the figures of cards and docs as PNG files. Functions import matplotlib when they draw."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from model.bundle import Manifest
from model.bundle.health import Health
from model.canvas import ACCENT, INK, PAPER, shown_channels
from model.health_figure import SIZE_PX, fill_health
from model.preprocess import Floats, scale
from model.runtime import Runtime
from model.views.sweep import draw_grid, sweep_dims, sweep_directions
from training.answers import WrongAnswers
from training.data.datasets import Examples

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_WRONG = 100
"""The number of wrong answers that are drawn."""
_DPI, _WIDTH = 100, 9.0


def draw_curves(metrics: Path, target: Path, *, title: str) -> None:
    """Draw losses, validation errors and the learning rate in a run's metrics over its epochs."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    names = dict.fromkeys(name for line in lines for name, value in line.items() if value > 0)
    drawn = [
        name
        for name in names
        if name.endswith("_loss") or "error_percent" in name or name == "learning_rate"
    ]
    figure, axes = make_axes(max(1, len(drawn)), 1, title=title)
    for axis, name in zip(axes.flat, drawn, strict=False):
        kept = [line for line in lines if line.get(name, 0) > 0]
        axis.plot([line["epoch"] for line in kept], [line[name] for line in kept])
        words = name.replace("_percent", ", %").replace("_", " ")
        axis.set(title=words, xlabel="epoch", yscale="log")
    save(figure, target)


def draw_confidence(scores: Mapping[str, Mapping[str, Any]], target: Path, *, title: str) -> None:
    """Draw reliability, coverage and sizes of label sets for several kinds of images.

    The area of a point of the first panel is the share of images with such a probability.

    Args:
        scores: by kind, as `training.reliability` measures them.
    """
    from matplotlib import colormaps  # noqa: PLC0415  a run can do without

    figure, axes = make_axes(1, 3, title=title)
    reliability, coverage, size = axes[0]
    for axis in (reliability, coverage):
        axis.axline((0, 0), slope=1, color=INK, linewidth=0.8, linestyle=":")
    for number, (kind, one) in enumerate(scores.items()):
        colour_of = {"color": colormaps["tab10"](number)}
        requested = [float(share) for share in one["sets"]]
        sizes = [sets["mean_size"] for sets in one["sets"].values()]
        size.plot(requested, sizes, "o-", markersize=3, label=kind, **colour_of)
        if "bins" not in one:
            continue
        bins = one["bins"]
        points = [[bin_[name] for bin_ in bins] for name in ("probability", "right")]
        areas = [4 + 200 * bin_["images"] / one["images"] for bin_ in bins]
        reliability.plot(*points, linewidth=0.8, **colour_of)
        reliability.scatter(*points, s=areas, alpha=0.6, **colour_of)
        if all("coverage" in sets for sets in one["sets"].values()):
            reached = [sets["coverage"] for sets in one["sets"].values()]
            coverage.plot(requested, reached, "o-", markersize=3, **colour_of)
    reliability.set(title="right answers, share", xlabel="probability")
    coverage.set(title="sets with the label", xlabel="coverage requested", xlim=(0.88, 1))
    size.set(title="labels in a set", xlabel="coverage requested", xlim=(0.88, 1))
    size.set_ylim(0, 1.1 * max(2, size.get_ylim()[1]))
    for axis in axes.flat:
        axis.title.set_fontsize("small")
    figure.legend(loc="outside right center", fontsize="x-small", frameon=False)
    save(figure, target, 256)


def draw_health(health: Health, target: Path, *, title: str) -> None:
    """Draw the health of a network's capsules."""
    from matplotlib.figure import Figure  # noqa: PLC0415  a run can do without

    width, height = SIZE_PX
    figure = Figure((width / _DPI, height / _DPI), dpi=_DPI)
    fill_health(figure, health, title=title)
    save(figure, target)


def draw_wrong(wrong: WrongAnswers, class_names: Sequence[str], target: Path) -> None:
    """Draw the first MAX_WRONG: above each its label and presence, below, coloured, answers'."""
    shown = [np.asarray(part[:MAX_WRONG]) for part in wrong]
    longest = max(len(_name(classes, class_names)) for part in shown[1:3] for classes in part)
    columns = min(len(shown[0]), max(2, round(_WIDTH / max(0.75, 0.085 * (longest + 6)))))
    figure, axes = make_axes(math.ceil(len(shown[0]) / columns), columns, image=True)
    for axis, image, label, answer, (right, least) in zip(axes.flat, *shown, strict=False):
        show(axis, image / np.float32(255))
        axis.set_title(f"{_name(label, class_names)}  {right:.2f}", fontsize="small")
        axis.set_xlabel(
            f"{_name(answer, class_names)}  {least:.2f}", fontsize="small", color=ACCENT
        )
    save(figure, target)


def draw_sweeps(
    runtime: Runtime, manifest: Manifest, examples: Examples, labels: Sequence[int], target: Path
) -> None:
    """Draw the directions of the first image of each of some classes, side by side.

    Classes without directions are drawn by dimension.
    """
    deltas = tuple(number / 20 for number in range(-5, 6))
    by_dimension = sweep_dims(range(manifest.class_dim), deltas, manifest.class_dim)
    grids = []
    for label in labels:
        offered = manifest.offered_directions(label)
        image = scale(examples.images[examples.labels == label][:1])
        pose = runtime.encode(image).poses[0, label]
        sweep = sweep_directions(offered, pose) if offered else by_dimension
        poses = sweep.poses(pose)
        drawn = sweep.on_grid(runtime.decode(poses, np.full(len(poses), label, np.int64)))
        name = manifest.class_names[label]
        grid = draw_grid(drawn, sweep.names, sweep.steps, title=name, scale=1, heads=not offered)
        grids.append(grid)
    size = (sum(grid.width for grid in grids), max(grid.height for grid in grids))
    picture = Image.new("RGB", size, PAPER)
    for index, grid in enumerate(grids):
        picture.paste(grid, (sum(other.width for other in grids[:index]), 0))
    _save_small(picture, target, 64)


def make_axes(
    rows: int, columns: int, *, title: str = "", image: bool = False
) -> tuple[Figure, NDArray[Any]]:
    """A figure and its axes (rows, columns), in the one style of all of them."""
    from matplotlib.figure import Figure  # noqa: PLC0415  a run can do without

    height = (_WIDTH / max(columns, 10) + 0.35) if image else 2.4
    figure = Figure((_WIDTH, rows * height), dpi=_DPI, layout="constrained")
    figure.suptitle(title, fontsize="medium")
    axes: NDArray[Any] = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        if image:
            axis.set(xticks=[], yticks=[], frame_on=False)
        else:
            axis.grid(alpha=0.4)
            axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def show(axis: Axes, image: Floats) -> None:
    """Show an image (C, H, W) in [0, 1]."""
    shown = shown_channels(image)
    rgb = shown.transpose(1, 2, 0).repeat(3 // len(shown), axis=2)
    axis.imshow(rgb.clip(0, 1), interpolation="nearest")


def save(figure: Figure, target: Path, colours: int = 64) -> None:
    """Write a PNG of so few colours that it stays small."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    with Image.open(drawn) as picture:
        _save_small(picture.convert("RGB"), target, colours)


def _save_small(picture: Image.Image, target: Path, colours: int) -> None:
    """Save a PNG of the few most frequent colours."""
    small = picture.quantize(colours, dither=Image.Dither.NONE)
    small.save(target, "PNG", optimize=True)


def _name(classes: NDArray[np.int64], class_names: Sequence[str]) -> str:
    """Classes (C,) in words."""
    return " + ".join(class_names[label] for label in classes)
