"""The drawing of a routing trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from model.canvas import enlarge, fit_scale
from model.preprocess import Floats
from model.views.figure import darken, draw_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from model.views.routing import RoutingAnswer, RoutingQuery

_SUPPORTING, _OPPOSING = np.array([214, 84, 0]) / 255, np.array([9, 105, 218]) / 255
_VOTE, _SUBTRACTED, _MEAN = "#1b1f24", "#0969da", "#d65400"
_GAP, _HEAD, _SCALE = 16, 56, 46
"""Pixels between panels, above them for titles, and below them for the scale of support."""
_MAX_PX = 2_500_000
"""The most pixels of all panels: matplotlib takes half a second for them."""


def draw_routing(answer: RoutingAnswer, query: RoutingQuery) -> bytes:
    """A panel for each iteration and one for the votes, then a row for each layer before.

    In the iterations' panels every cell of the grid is a square around the middle of what its
    capsules see: orange where they support the class, blue where they oppose it, all panels on the
    scale below them. In that of the votes, each dot is a vote, larger and darker the more it
    weighs, blue if its weight is negative; the plus is their mean. The rows of hidden layers have a
    map of each capsule type for each iteration, darker the more active.
    """
    hidden = answer.hidden
    rows = 1 + len(hidden)
    steps = [len(answer.iterations) + 1, *map(len, hidden.values())]
    columns = max(steps)
    panels = (rows, columns, *answer.image.shape)
    scale = fit_scale(query.scale, panels, max_px=_MAX_PX)
    _, height, width = (scale * size for size in answer.image.shape)
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
        strongest = _fill_classes(panels[0], answer)
        place = (_GAP / width_px, 0.7 * _SCALE / height_px, width / width_px, 8 / height_px)
        _draw_scale(figure.add_axes(place), strongest)
        for row, (name, presence) in zip(panels[1:], hidden.items(), strict=True):
            _fill_hidden(row, name, presence)

    return draw_figure(fill, width_px=width_px, height_px=height_px, constrained=False)


def _show(axes: Axes, title: str) -> Axes:
    axes.set_visible(True)
    axes.set_title(title, loc="left", fontsize=7)
    return axes


def _fill_classes(panels: Sequence[Axes], answer: RoutingAnswer) -> float:
    """Draw the support for the class by iteration, and its votes. Return the largest support."""
    label = answer.label
    maps = answer.heat_maps.grid[:, label]
    strongest = float(np.abs(maps).max()) or 1.0
    for step, (support, state) in enumerate(zip(maps, answer.iterations, strict=True)):
        figures = f"agreement {state.agreement[label]:.2f}\n{answer.presence}"
        axes = _show(panels[step], f"iteration {step + 1}\n{figures} {state.lengths[label]:.2f}")
        _draw_support(axes, answer, support / strongest)
    spread = 100 * float(answer.votes.explained.sum())
    title = f"votes for {answer.class_name}: {spread:.0f} % of their spread"
    title += "\nin 2-D; square roots of distances"
    _draw_votes(_show(panels[len(maps)], title), answer.points, answer.weights)
    return strongest


def _draw_support(axes: Axes, answer: RoutingAnswer, support: Floats) -> None:
    """The image, paled, and the square of each cell tinted by support (rows, columns)."""
    _, height, width = answer.image.shape
    ground = enlarge(darken(answer.image, strokes=answer.fit.polarity is not None), 1)
    axes.imshow(ground.convert("RGB"), extent=(0, width, height, 0), interpolation="nearest")
    # A single cell covers the whole image, which is to be seen all the same.
    tints = _tint(support, opacity=0.9 if support.size > 1 else 0.4)
    first, right, bottom = answer.cells_px
    axes.imshow(tints, extent=(first, right, bottom, first), interpolation="nearest")
    axes.set(xlim=(0, width), ylim=(height, 0))


def _tint(support: Floats, *, opacity: float) -> Floats:
    """Map support in [-1, 1] to colours (..., 4)."""
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


def _draw_votes(axes: Axes, points: Floats, weights: Floats) -> None:
    """Draw votes (I, 2) as dots around their mean by weights (I,).

    Distances from the mean are drawn as their square roots: a vote for a 4 in `mnist` lies 66 times
    as far out as the median.
    """
    sizes = np.abs(weights)
    share: Any = sizes / (sizes.max() or 1.0)  # alpha takes arrays
    distances = np.linalg.norm(points, axis=1, keepdims=True)
    points = points / np.sqrt(np.maximum(distances, np.finfo(np.float32).tiny))
    reach = float(np.abs(points).max()) * 1.08 or 1.0
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach))
    colour = [_VOTE if weight >= 0 else _SUBTRACTED for weight in weights]
    size, alpha = 2 + 7 * share, 0.25 + 0.5 * share
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
