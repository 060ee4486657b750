"""Draw the PNG files of a bundle's card: what is on record, what poses draw, and wrong answers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from model.bundle import Bundle, Manifest
from model.bundle.disk import replacing
from model.canvas import ACCENT, INK, PAPER
from model.preprocess import Floats
from model.runtime import Runtime
from model.views.figure import fill_health, new_figure, render, show_strip
from model.views.sweep import draw_grid, sweep_dims, sweep_directions
from training.answers import Answers, answer, as_floats, is_wrong
from training.confidence import scores_of
from training.metrics import LOSS, METRICS

if TYPE_CHECKING:
    from matplotlib.figure import SubFigure

FIGURES, DECODED, WRONG = "figures.png", "decoded.png", "wrong.png"
"""Figures of numbers on record; images that poses draw; images that are answered wrongly."""
MAX_WRONG = 100
"""The number of wrong answers that are drawn."""
_SWEPT = 2
"""The number of classes whose sweeps are drawn."""
_WIDTH_PX, _ROW_PX = 900, 240
_SHOWN_PX = 56
"""Images next to their reconstructions are enlarged by whole pixels to about this height."""


def draw_figures(bundle: Bundle) -> None:
    """Draw what the bundle has on record: training curves, confidence and health, each a row.

    Without any of them there is no file.
    """
    manifest, metrics, target = bundle.manifest, bundle.path / METRICS, bundle.path / FIGURES
    lines = metrics.read_text().splitlines() if metrics.is_file() else ()
    rows = list[Callable[[Any], object]]()
    if lines:
        rows.append(partial(_fill_curves, lines=[json.loads(line) for line in lines]))
    if scores := scores_of(manifest):
        rows.append(partial(_fill_confidence, scores=scores))
    if manifest.health:
        rows.append(partial(fill_health, health=manifest.health, title="Health"))

    if not rows:
        target.unlink(missing_ok=True)
        return
    figure = new_figure(_WIDTH_PX, _ROW_PX * len(rows))
    parts = figure.subfigures(len(rows), 1, squeeze=False).flat
    for part, fill_row in zip(parts, rows, strict=True):
        fill_row(part)
    _save(render(figure), target, Image.Quantize.MAXCOVERAGE)  # thin lines keep their colours


def draw_wrong(answers: Answers, class_names: Sequence[str], target: Path) -> None:
    """Draw the first MAX_WRONG wrong answers; without any there is no file.

    Above each is its label, below, coloured, the answer; and of both the presence of the class, of
    the less present one of two.
    """
    wrong = answers.at(np.flatnonzero(is_wrong(answers.presence, answers.labels))[:MAX_WRONG])
    if not len(wrong.labels):
        target.unlink(missing_ok=True)
        return
    images, labels = as_floats(wrong.images), np.sort(wrong.labels.reshape(len(wrong.labels), -1))
    above, below = (
        [
            f"{' + '.join(class_names[label] for label in classes)}  {presence[classes].min():.2f}"
            for classes, presence in zip(part, wrong.presence, strict=True)
        ]
        for part in (labels, answer(wrong.presence, labels))
    )
    longest = max(map(len, (*above, *below)))
    columns = min(len(images), max(2, round(9 / max(0.75, 0.085 * longest))))
    rows = -(-len(images) // columns)
    figure = new_figure(_WIDTH_PX, rows * (_WIDTH_PX / max(columns, 10) + 35))
    panels = show_strip(figure, list(images), above, columns=columns)
    for axes, words in zip(panels, below, strict=True):
        axes.set_xlabel(words, fontsize="small", color=ACCENT)
        axes.set_frame_on(False)
    _save(render(figure), target)


def draw_decoded(grids: Sequence[Image.Image], rows: Mapping[str, Floats], target: Path) -> None:
    """Draw images above their reconstructions, and below them sweeps of poses, side by side.

    Args:
        grids: as `draw_sweeps` gives them.
        rows: images (N, C, H, W) and what reconstructs them, by title; none where the images are
            private.
    """
    above = []
    if rows:
        scale = max(1, round(_SHOWN_PX / next(iter(rows.values())).shape[2]))
        columns = range(1, 1 + len(next(iter(rows.values()))))
        images = [[*images] for images in rows.values()]
        above = [draw_grid(images, [*rows], columns, title="Images", scale=scale, heads=False)]
    top = sum(picture.height for picture in above)
    width = max(sum(picture.width for picture in part) for part in (above, grids))
    height = top + max((grid.height for grid in grids), default=0)
    drawn = Image.new("RGB", (width, height), PAPER)
    for part, y in ((above, 0), (grids, top)):
        x = 0
        for picture in part:
            drawn.paste(picture, (x, y))
            x += picture.width
    _save(drawn, target)


def draw_sweeps(runtime: Runtime, manifest: Manifest, answers: Answers) -> list[Image.Image]:
    """Draw the directions of an image of each of the classes with the most directions.

    Classes without directions are drawn by dimension.
    """
    deltas = tuple(number / 20 for number in range(-5, 6))
    offered = {label: manifest.offered_directions(label) for label in np.unique(answers.labels)}
    chosen = sorted(offered, key=lambda label: -len(offered[label]))[:_SWEPT]
    grids = []
    for label in sorted(chosen):
        row = np.argwhere(answers.labels == label)[0, 0]
        pose = answers.poses[row, label]
        sweep = sweep_dims(pose, range(len(pose)), deltas)
        if offered[label]:
            sweep = sweep_directions(pose, offered[label])
        poses = sweep.poses.reshape(-1, len(pose))
        images = runtime.decode(poses, np.full(len(poses), label, np.int64))
        drawn = images.reshape(*sweep.poses.shape[:2], *images.shape[1:])
        name, heads = manifest.class_names[label], not offered[label]
        grid = draw_grid(drawn, sweep.names, sweep.steps, title=name, scale=1, heads=heads)
        grids.append(grid)
    return grids


def _fill_curves(figure: SubFigure, lines: Sequence[Mapping[str, float]]) -> None:
    """Losses, validation errors and the learning rate of a run over its epochs."""
    names = dict.fromkeys(name for line in lines for name, value in line.items() if value > 0)
    drawn = [
        name
        for name in names
        if name.endswith(LOSS) or "error_percent" in name or name == "learning_rate"
    ]
    figure.suptitle("Training", fontsize="medium")
    for axes, name in zip(figure.subplots(1, len(drawn), squeeze=False).flat, drawn, strict=True):
        kept = [line for line in lines if line.get(name, 0) > 0]
        points = [[line[key] for line in kept] for key in ("epoch", name)]
        axes.plot(*points, marker="" if kept[1:] else "o")
        words = name.replace("_percent", ", %").replace("_", " ")
        axes.set(title=words, xlabel="epoch", yscale="log")
        _plain(axes)


def _fill_confidence(figure: SubFigure, scores: Mapping[str, Mapping[str, Any]]) -> None:
    """Reliability, coverage and sizes of label sets for several kinds of images.

    The area of a point of the first panel is the share of images with such a probability.
    """
    from matplotlib import colormaps  # noqa: PLC0415  a run can do without

    figure.suptitle("Confidence", fontsize="medium")
    reliability, coverage, size = figure.subplots(1, 3)
    for axes in (reliability, coverage):
        axes.axline((0, 0), slope=1, color=INK, linewidth=0.8, linestyle=":")
    for number, (kind, measured) in enumerate(scores.items()):
        colour_of = {"color": colormaps["tab10"](number)}
        requested = [float(share) for share in measured["sets"]]
        sizes = [sets["mean_size"] for sets in measured["sets"].values()]
        size.plot(requested, sizes, "o-", markersize=3, label=kind, **colour_of)
        if "bins" not in measured:
            continue
        bins = measured["bins"]
        points = [[bin_[name] for bin_ in bins] for name in ("probability", "right")]
        areas = [4 + 200 * bin_["images"] / measured["images"] for bin_ in bins]
        reliability.plot(*points, linewidth=0.8, **colour_of)
        reliability.scatter(*points, s=areas, alpha=0.6, **colour_of)
        if all("coverage" in sets for sets in measured["sets"].values()):
            reached = [sets["coverage"] for sets in measured["sets"].values()]
            coverage.plot(requested, reached, "o-", markersize=3, **colour_of)
    reliability.set(title="right answers, share", xlabel="probability")
    coverage.set(title="sets with the label", xlabel="coverage requested")
    size.set(title="labels in a set", xlabel="coverage requested")
    for axes in (coverage, size):
        axes.set(xlim=(0.88, 1), xticks=(0.9, 0.95, 1))
    size.set_ylim(0, 1.1 * max(2, size.get_ylim()[1]))
    for axes in (reliability, coverage, size):
        _plain(axes)
    figure.legend(loc="outside right center", fontsize="x-small", frameon=False)


def _plain(axes: Any) -> None:
    """A panel with a grid and without a frame, as those of health."""
    axes.grid(alpha=0.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.title.set_fontsize("small")
    axes.tick_params(labelsize="small", which="both")


def _save(
    picture: Image.Image | bytes,
    target: Path,
    method: Image.Quantize = Image.Quantize.MEDIANCUT,
) -> None:
    """Save a PNG of 256 colours, so that it stays small."""
    drawn = Image.open(io.BytesIO(picture)) if isinstance(picture, bytes) else picture
    small = drawn.convert("RGB").quantize(256, method, dither=Image.Dither.NONE)
    with replacing(target) as file:
        small.save(file, "PNG", optimize=True)
