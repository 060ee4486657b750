"""What routes draw in processes of their own, from what the networks say; nothing of HTTP."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from PIL import Image

from model.bundle import Layer, Manifest
from model.canvas import enlarge, png
from model.interpret.equivariance import Transform, Walk
from model.interpret.routing import Agreement, Projection, on_grid
from model.interpret.sweep import Sweep
from model.interpret.sweep_grid import draw_sweep
from model.preprocess import Floats, Prepared
from service.pool.pool import Pool, Template

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 100
DRAW_CPU_S = 10.0
"""Most CPU time of a drawing."""
_MATPLOTLIB = ("matplotlib.figure", "matplotlib.backends.backend_agg")
_MEMORY_BYTES = 500_000_000
"""For a drawing: the largest sweep has 21 megapixels."""
MOST_WAITING = 8
"""Drawings, each a fifth of a second: more callers are told to come again."""
_THUMBNAILS = 13
"""At most so many images are shown, evenly spaced."""
_COLOURED, _OTHERS = 3, "#b4b9c0"
"""Pose dimensions in colour, and the grey of the rest."""
_UNITS: dict[Transform, str] = {
    "shift-x": "pixels to the right",
    "shift-y": "pixels down",
    "turn": "degrees counter-clockwise",
    "scale": "times the size",
}
_SUPPORTING, _OPPOSING = np.array([214, 84, 0]) / 255, np.array([9, 105, 218]) / 255
_VOTE, _SUBTRACTED, _MEAN = "#1b1f24", "#0969da", "#d65400"
_STROKE = 0.45
"""How dark the image is, under the support."""
_GAP, _HEAD, _SCALE = 16, 56, 46
"""Pixels between panels, for the titles above them, and for the scale of support below."""


def open_pool() -> Pool:
    """One process that draws, started with the first drawing: matplotlib takes 50 MB."""
    template = Template(__name__, *_MATPLOTLIB, memory_bytes=_MEMORY_BYTES)
    return Pool(template, processes=1, limit=MOST_WAITING)


def _draw(fill: Callable[[Figure], None], *, width_px: float, height_px: float) -> bytes:
    """What `fill` draws into a figure of this size."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  takes half a second
    from matplotlib.figure import Figure  # noqa: PLC0415

    canvas = FigureCanvasAgg(Figure((width_px / _DPI, height_px / _DPI), dpi=_DPI))
    fill(canvas.figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return png(Image.fromarray(pixels[..., :3]))


def draw_sweep_png(
    images: Floats, sweep: Sweep, *, manifest: Manifest, label: int, scale: int
) -> bytes:
    """The paper's figure 4 as a PNG; see `draw_sweep`."""
    return png(draw_sweep(images, sweep, manifest=manifest, label=label, scale=scale))


def draw_equivariance(
    manifest: Manifest,
    walk: Walk,
    images: list[Floats],
    *,
    label: int,
    presence: Floats,
    poses: Floats,
    angles_deg: Floats,
) -> bytes:
    """Images on top, then presence and, where there are poses, angle and numbers, as a PNG.

    Args:
        manifest: of the network.
        walk: its S values are the axis.
        images: S images (C, H, W).
        label: the class that is followed.
        presence: (S, K).
        poses: (S, D), of the class.
        angles_deg: (S,), of its poses with that of the unmoved image.
    """
    name, steps = manifest.class_names[label], len(images)
    others = np.delete(presence, label, axis=1).max(axis=1)
    charts: list[tuple[str, Floats]] = [
        (manifest.presence, np.column_stack((presence[:, label], others)))
    ]
    if manifest.class_dim:
        angle = f"degrees between the pose of {name} and that of the unmoved picture"
        numbers = f"the {manifest.class_dim} numbers of the pose, those that change most in colour"
        charts += [(angle, angles_deg), (numbers, poses)]
    shown = np.unique(np.linspace(0, steps - 1, min(steps, _THUMBNAILS)).round().astype(int))
    heights = (100, 240 * len(charts))

    def fill(figure: Figure) -> None:
        figure.set_layout_engine("constrained")
        strip, curves = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
        places = strip.subplots(1, len(shown), squeeze=False)[0]
        for axes, step in zip(places, shown, strict=True):
            axes.imshow(enlarge(images[step], 1).convert("RGB"), interpolation="nearest")
            axes.set(xticks=[], yticks=[], xlabel=f"{walk.values[step]:.3g}")
        rows = curves.subplots(len(charts), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, values) in zip(rows, charts, strict=True):
            if values is poses:
                _draw_poses(axes, walk, poses)
            else:
                axes.plot(walk.values, values)
            axes.set_title(title, loc="left", fontsize="medium")
            axes.grid(alpha=0.4)
        rows[0].legend([name, "most present other class"], fontsize="small")
        rows[0].set_ylim(0, 1)
        rows[-1].set_xlabel(_UNITS[walk.transform])

    return _draw(fill, width_px=900, height_px=sum(heights))


def _draw_poses(axes: Axes, walk: Walk, poses: Floats) -> None:
    """Pose dimensions (S, D): those of the largest range in colour, with a legend."""
    ranges = np.ptp(poses, axis=0)
    most = np.argsort(-ranges, kind="stable")[:_COLOURED].tolist()
    axes.plot(walk.values, np.delete(poses, most, axis=1), color=_OTHERS, linewidth=0.7)
    for dim in sorted(most):
        axes.plot(walk.values, poses[:, dim], label=f"dimension {dim}")
    axes.legend(fontsize="small")


class RoutingView(NamedTuple):
    """What routing did with one image, and the class that is shown."""

    prepared: Prepared
    """The image."""
    label: int
    """Of the class."""
    presence: Floats
    """(R,), of the class after each iteration."""
    hidden: dict[str, Floats]
    """Of the layers before the last one, by name: (R, T', rows, columns), how active each is."""
    agreement: Agreement
    votes: Projection
    """For the class, by their weights in the last iteration."""


def draw_routing(view: RoutingView, manifest: Manifest, *, scale: int) -> bytes:
    """A panel for each iteration and one for the votes, then a row for each layer before.

    In the iterations' panels every cell of the grid is a square around the middle of what its
    capsules see: orange where they support the class, blue where they oppose it, all panels on the
    scale below them. In that of the votes, each dot is a vote, larger and darker the more it
    weighs, blue if its weight is negative. The rows of hidden layers have a map of each capsule
    type for each iteration, darker the more active.
    """
    hidden = view.hidden
    rows = 1 + len(hidden)
    steps = [len(view.agreement.support) + 1, *map(len, hidden.values())]
    columns = max(steps)
    _, height, width = (scale * size for size in manifest.image_shape)
    width_px, height_px = _GAP + columns * (width + _GAP), _GAP + rows * (_HEAD + height) + _SCALE

    def fill(figure: Figure) -> None:
        grid = {
            "left": _GAP / width_px,
            "right": 1 - _GAP / width_px,
            "bottom": (_GAP + _SCALE) / height_px,
            "top": 1 - _HEAD / height_px,
            "wspace": _GAP / width,
            "hspace": _HEAD / height,
        }
        panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw=grid)
        for axes in panels.flat:
            axes.set(xticks=[], yticks=[], visible=False)
        strongest = _fill_classes(panels[0], view, manifest)
        place = (_GAP / width_px, 0.7 * _SCALE / height_px, width / width_px, 8 / height_px)
        _draw_scale(figure.add_axes(place), strongest)
        for row, (name, presence) in zip(panels[1:], hidden.items(), strict=True):
            _fill_hidden(row, name, presence)

    return _draw(fill, width_px=width_px, height_px=height_px)


def _show(axes: Axes, title: str) -> Axes:
    axes.set_visible(True)
    axes.set_title(title, loc="left", fontsize=7)
    return axes


def _fill_classes(panels: Sequence[Axes], view: RoutingView, manifest: Manifest) -> float:
    """Support for the class by iteration, and the votes for it; the largest support."""
    layer, label = manifest.layers[-1], view.label
    maps = on_grid(view.agreement.support[:, label], layer)
    strongest = float(np.abs(maps).max()) or 1.0
    for step, support in enumerate(maps):
        figures = f"agreement {view.agreement.agreement[step, label]:.2f}\n{manifest.presence}"
        axes = _show(panels[step], f"iteration {step + 1}\n{figures} {view.presence[step]:.2f}")
        _draw_support(axes, view.prepared, support / strongest, layer)
    spread = 100 * float(view.votes.explained.sum())
    title = f"votes for {manifest.class_names[label]}\n{spread:.0f} % of their variance"
    _draw_votes(_show(panels[len(maps)], title), view)
    return strongest


def _draw_support(axes: Axes, prepared: Prepared, support: Floats, layer: Layer) -> None:
    """An image, paled, and the square of each cell tinted by support (rows, columns) in [-1, 1]."""
    # Photographs, which have no polarity, stay as they are.
    dark = prepared.image if prepared.polarity else 1 - prepared.image
    _, height, width = dark.shape
    ground = enlarge(1 - _STROKE * dark, 1).convert("RGB")
    axes.imshow(ground, extent=(0, width, height, 0), interpolation="nearest")
    # A single cell covers the whole image, which is to be seen all the same.
    tints = _tint(support, opacity=0.9 if support.size > 1 else 0.4)
    first = layer.offset_px + (layer.field_px - layer.stride_px) / 2
    right, below = (first + layer.stride_px * count for count in (layer.columns, layer.rows))
    axes.imshow(tints, extent=(first, right, below, first), interpolation="nearest")
    axes.set(xlim=(0, width), ylim=(height, 0))


def _tint(support: Floats, *, opacity: float) -> Floats:
    """Colours (..., 4) of support in [-1, 1]."""
    colour = np.where(support[..., None] > 0, _SUPPORTING, _OPPOSING)
    tints: Floats = np.concatenate((colour, opacity * np.abs(support)[..., None]), axis=-1)
    return tints


def _draw_scale(axes: Axes, strongest: float) -> None:
    """The colours of support, from minus to plus the strongest."""
    values = np.linspace(-1, 1, 65, dtype=np.float32)[None]
    extent = (-strongest, strongest, 0, 1)
    axes.imshow(_tint(values, opacity=0.9), extent=extent, aspect="auto")
    axes.set(xticks=[-strongest, 0, strongest], yticks=[])
    axes.set_xticklabels([f"{-strongest:.2g}", "0", f"{strongest:.2g}"], fontsize=7)
    axes.set_xlabel("support, by place", fontsize=7, labelpad=1)


def _draw_votes(axes: Axes, view: RoutingView) -> None:
    """Votes as dots around their weighted mean."""
    points, weights = view.votes.points, view.agreement.weights[-1, view.label]
    sizes = np.abs(weights)
    share = sizes / (sizes.max() or 1.0)
    reach = float(np.abs(points).max()) * 1.08 or 1.0
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach))
    colour = [_VOTE if weight >= 0 else _SUBTRACTED for weight in weights]
    size, alpha = 0.5 + 6 * share, 0.08 + 0.43 * share
    axes.scatter(points[:, 0], points[:, 1], s=size, c=colour, alpha=alpha, linewidths=0)
    axes.plot(0, 0, "+", color=_MEAN)


def _fill_hidden(panels: Sequence[Axes], name: str, presence: Floats) -> None:
    """The activation maps of a layer, by iteration, all on one scale, as squares of a square."""
    types, rows, columns = presence.shape[1:]
    count = math.ceil(math.sqrt(types))
    low, high = presence.min(), presence.max()
    for step, maps in enumerate(presence):
        range_ = f"from {maps.min():.2f} to {maps.max():.2f}"
        axes = _show(panels[step], f"{name}, iteration {step + 1}\nactivations\n{range_}")
        squares = np.pad(maps, ((0, count**2 - types), (0, 1), (0, 1)), constant_values=np.nan)
        lines = squares.reshape(count, count, rows + 1, columns + 1).swapaxes(1, 2)
        mosaic = lines.reshape(count * (rows + 1), count * (columns + 1))
        axes.imshow(mosaic, cmap="gray_r", vmin=low, vmax=high, interpolation="nearest")
