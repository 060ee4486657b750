"""The drawing of a routing trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from model.canvas import INK, fit_scale
from model.preprocess import Floats
from model.views.figure import OPPOSES, SUPPORTS, new_figure, render, show_support

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

    from model.views.routing import RoutingAnswer, RoutingQuery

_GAP, _HEAD, _SCALE = 16, 56, 46
"""Pixels between panels, above them for titles, and below them for the scale of support."""
_MAX_PX = 2_500_000
"""The most pixels of all panels: matplotlib takes half a second for them."""


def draw_routing(answer: RoutingAnswer, query: RoutingQuery) -> bytes:
    """A panel for each iteration and one for the votes, then a row for each layer before.

    In the iterations' panels every cell of the grid is a square around the middle of what its
    capsules see, coloured by its support, all panels on the scale below them. In that of the votes,
    each dot is a vote, larger and darker the more it weighs, blue if its weight is negative; the
    plus is their mean. The rows of hidden layers have a map of each capsule type for each
    iteration, darker the more active.
    """
    from matplotlib.text import Text  # noqa: PLC0415  matplotlib takes half a second

    hidden = answer.hidden
    steps = [len(answer.iterations) + 1, *map(len, hidden.values())]
    rows, columns = len(steps), max(steps)
    scale = fit_scale(query.scale, (rows, columns, *answer.image.shape), max_px=_MAX_PX)
    _, height, width = (scale * size for size in answer.image.shape)
    width_px, height_px = _GAP + columns * (width + _GAP), _GAP + rows * (_HEAD + height) + _SCALE
    figure = new_figure(width_px, height_px, constrained=False)
    grid = {
        "left": _GAP / width_px,
        "right": 1 - _GAP / width_px,
        "bottom": (_GAP + _SCALE) / height_px,
        "top": 1 - _HEAD / height_px,
        "wspace": _GAP / width,
        "hspace": _HEAD / height,
    }
    panels = figure.subplots(rows, columns, squeeze=False, gridspec_kw=grid)
    for row, count in zip(panels, steps, strict=True):
        for axes in row[count:]:
            axes.set_visible(False)
    shown = _fill_classes(panels[0], answer)
    place = (_GAP / width_px, 0.7 * _SCALE / height_px, width / width_px, 8 / height_px)
    low, high = shown.get_clim()
    ticks, bar = [low, 0, high], figure.add_axes(place)
    figure.colorbar(shown, bar, orientation="horizontal", ticks=ticks, format="%.2g")
    bar.set_xlabel("support, by place", labelpad=1)
    for row, (name, presence) in zip(panels[1:], hidden.items(), strict=True):
        _fill_hidden(row, name, presence)
    for text in figure.findobj(Text):
        text.set_fontsize(7)
    return render(figure)


def _fill_classes(panels: Sequence[Axes], answer: RoutingAnswer) -> AxesImage:
    """Draw the support for the class by iteration, and its votes. Return the last support."""
    label = answer.label
    maps = answer.heat_maps.grid[:, label]
    most = float(np.abs(maps).max()) or 1.0
    for step, state in enumerate(answer.iterations):
        title = f"iteration {step + 1}\nagreement {state.agreement[label]:.2f}\n"
        title += f"{answer.presence} {state.lengths[label]:.2f}"
        shown = show_support(
            panels[step], answer, maps[step], title, most=most, extent_px=answer.extent_px
        )
    spread = 100 * float(answer.votes.explained.sum())
    title = f"votes for {answer.class_name}: {spread:.0f} % of their spread"
    title += "\nin 2-D; square roots of distances"
    _draw_votes(panels[len(maps)], answer.points, answer.weights, title)
    return shown


def _draw_votes(axes: Axes, points: Floats, weights: Floats, title: str) -> None:
    """Draw votes (I, 2) as dots around their mean by weights (I,).

    Distances from the mean are drawn as their square roots: a vote for a 4 in `mnist` lies 66 times
    as far out as the median.
    """
    sizes = np.abs(weights)
    share: Any = sizes / (sizes.max() or 1.0)  # alpha takes arrays
    distances = np.linalg.norm(points, axis=1, keepdims=True)
    points = points / np.sqrt(np.maximum(distances, np.finfo(np.float32).tiny))
    reach = float(np.abs(points).max()) * 1.08 or 1.0
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[])
    axes.set_title(title, loc="left")
    colours = np.where(weights >= 0, INK, OPPOSES)
    size, alpha = 2 + 7 * share, 0.25 + 0.5 * share
    axes.scatter(points[:, 0], points[:, 1], s=size, c=colours, alpha=alpha, linewidths=0)
    axes.plot(0, 0, "+", color=SUPPORTS)


def _fill_hidden(panels: Sequence[Axes], name: str, presence: Floats) -> None:
    """The activation maps of a layer, by iteration, all on one scale, as squares of a square."""
    types, rows, columns = presence.shape[1:]
    count = math.ceil(math.sqrt(types))
    low, high = presence.min(), presence.max()
    for step, maps in enumerate(presence):
        range_ = f"from {maps.min():.2f} to {maps.max():.2f}"
        squares = np.pad(maps, ((0, count**2 - types), (0, 1), (0, 1)), constant_values=np.nan)
        lines = squares.reshape(count, count, rows + 1, columns + 1).swapaxes(1, 2)
        mosaic = lines.reshape(count * (rows + 1), count * (columns + 1))
        axes = panels[step]
        axes.imshow(mosaic, cmap="gray_r", vmin=low, vmax=high, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{name}, iteration {step + 1}\nactivations\n{range_}", loc="left")
