"""`POST /routing`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from model.bundle import Layer, Manifest
from model.canvas import enlarge
from model.interpret.routing import (
    Agreement,
    Projection,
    by_type,
    on_grid,
    project,
    trace_agreement,
)
from model.preprocess import Floats, Prepared
from model.runtime import Trace
from service.drawing import draw_figure
from service.errors import unwrap
from service.http.route import RESPONSE_COST_ROWS, Request, SlowJsonOrPng
from service.http.uploads import read_picture
from service.pipeline import Capsule, Encoded, check_label
from service.views.schemas import (
    CapsuleAnswer,
    Maps,
    Matrix,
    Number,
    Rounded,
    TargetQuery,
    Vector,
    answer_fields,
)
from service.views.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SUPPORTING, _OPPOSING = np.array([214, 84, 0]) / 255, np.array([9, 105, 218]) / 255
_VOTE, _SUBTRACTED, _MEAN = "#1b1f24", "#0969da", "#d65400"
_STROKE = 0.45
"""The brightness of the image under the support."""
_GAP, _HEAD, _SCALE = 16, 56, 46
"""Pixels between panels, above them for titles, and below them for the scale of support."""


class RoutingQuery(TargetQuery):
    """The parameters of `/routing`."""

    detail: bool = Field(
        default=True,
        description="`false` leaves out arrays with a number for each input capsule (couplings, "
        "logits and votes: half a megabyte for the paper's network) and maps of hidden layers.",
    )
    scale: int = Field(8, ge=5, le=16, description="PNG: each pixel becomes scale x scale.")


class RoutingIteration(BaseModel):
    """The state after one iteration. Lists over classes are by label."""

    lengths: Vector = Field(description="(K,), presence of the classes.")
    agreement: Vector = Field(description="(K,), -1 to 1: how well the votes agree.")
    entropy: Number | None = Field(
        description="Normalised entropy of the couplings, from 0 to 1: how undecided the input "
        "capsules are. Null where couplings are no distribution over the classes."
    )
    couplings: Matrix | None = Field(
        None,
        description="(K, I); with detail=true. What each vote weighs; self-attention's may be "
        "negative.",
    )
    logits: Matrix | None = Field(None, description="(K, I); with detail=true.")


class HeatMaps(BaseModel):
    """Maps of support: each cell's part of a class's length before its squash; may be negative."""

    grid: Annotated[list[Maps], Rounded] = Field(description="(R, K, rows, columns), from the top.")
    types: Maps = Field(description="(R, K, T): summed over the grid.")


class Votes(BaseModel):
    """The votes for the label in the plane in which they differ most."""

    explained: Vector = Field(description="Share of their variance along x and along y.")
    points: Matrix | None = Field(None, description="(I, 2), centred; with detail=true.")
    couplings: Vector | None = Field(None, description="(I,), the last; with detail=true.")


class HiddenIteration(BaseModel):
    """A layer of convolutional capsules after one iteration."""

    activations: Vector = Field(description="(T',): means over the layer's grid.")
    maps: Maps | None = Field(None, description="(T', rows, columns); with detail=true.")
    assignments: Matrix = Field(description="(T', T): shares of each type of input.")


class HiddenLayer(BaseModel):
    """A routed layer before the last one."""

    name: str
    iterations: list[HiddenIteration]


class RoutingAnswer(CapsuleAnswer):
    """The state of routing after each iteration.

    Input capsule i has type t, row y and column x: i = (t * rows + y) * columns + x.
    """

    types: int = Field(description="T, of the capsules that vote for classes.")
    rows: int = Field(description="Of their grid.")
    columns: int
    iterations: list[RoutingIteration]
    heat_maps: HeatMaps
    votes: Votes
    layers: list[HiddenLayer] = Field(description="Routed layers before the last one, if any.")


class _Routed(NamedTuple):
    """The trace of one image, and the class that was asked for."""

    capsule: Capsule
    """The capsule of the class after the last iteration."""
    trace: Trace[Floats]
    """The trace of this image alone: no leading axis."""
    agreement: Agreement
    votes: Projection
    """The projected votes for the class, with their weights in the last iteration."""

    def view(self) -> RoutingView:
        """Return what is drawn."""
        capsule, trace = self.capsule, self.trace
        hidden = {name: layer.presence for name, layer in trace.hidden.items()}
        presence = trace.classes.presence[:, capsule.label]
        return RoutingView(
            capsule.prepared, capsule.label, presence, hidden, self.agreement, self.votes
        )


async def routing(request: Request, query: RoutingQuery) -> SlowJsonOrPng[RoutingAnswer]:
    """Trace routing: couplings, agreement, heat maps."""
    manifest = request.pipeline.manifest(query.model, needs="trace")
    check_label(manifest, query.target)
    upload = await read_picture(request)
    request.pipeline.admit(1 + RESPONSE_COST_ROWS)
    prepared = unwrap((await request.pipeline.prepare([upload], query.spec(manifest)))[0])
    trace = await request.pipeline.trace(manifest, prepared.image)
    routed = await asyncio.to_thread(_find, manifest, prepared, trace, query.target)
    answer = partial(_answer, manifest, routed, detail=query.detail)
    draw = partial(draw_routing, routed.view(), manifest, scale=query.scale)
    return SlowJsonOrPng(answer, manifest, draw, large=True)


def _find(
    manifest: Manifest, prepared: Prepared, trace: Trace[Floats], target: int | None
) -> _Routed:
    classes, activated = trace.classes, manifest.presence == "activation"
    capsule = Encoded(prepared, classes.presence[-1], classes.poses[-1]).capsule(target)
    agreement = trace_agreement(
        classes.couplings,
        classes.logits,
        classes.votes,
        classes.poses,
        classes.input_presence,
        activated=activated,
    )
    votes = project(classes.votes[capsule.label], agreement.weights[-1, capsule.label])
    return _Routed(capsule, trace, agreement, votes)


def _answer(manifest: Manifest, routed: _Routed, *, detail: bool) -> RoutingAnswer:
    layer, classes, agreement = manifest.layers[-1], routed.trace.classes, routed.agreement

    def large(values: Floats) -> Any:
        return values if detail else None

    iterations = [
        {
            "lengths": classes.presence[step],
            "agreement": agreement.agreement[step],
            "entropy": None if agreement.entropy is None else agreement.entropy[step],
            "couplings": large(classes.couplings[step]),
            "logits": large(classes.logits[step]),
        }
        for step in range(layer.iterations)
    ]
    hidden = [
        {
            "name": name,
            "iterations": [
                {
                    "activations": maps.mean(axis=(1, 2)),
                    "maps": large(maps),
                    "assignments": shares,
                }
                for maps, shares in zip(trace.presence, trace.couplings, strict=True)
            ],
        }
        for name, trace in routed.trace.hidden.items()
    ]
    grid, types = on_grid(agreement.support, layer), by_type(agreement.support, layer)
    votes = {
        "explained": routed.votes.explained,
        "points": large(routed.votes.points),
        "couplings": large(agreement.weights[-1, routed.capsule.label]),
    }
    fields = answer_fields(
        manifest,
        routed.capsule,
        types=layer.types,
        rows=layer.rows,
        columns=layer.columns,
        iterations=iterations,
        heat_maps={"grid": grid, "types": types},
        votes=votes,
        layers=hidden,
    )
    return RoutingAnswer(**fields)


class RoutingView(NamedTuple):
    """The trace of one image and the class that is drawn."""

    prepared: Prepared
    """The image."""
    label: int
    """The label of the class."""
    presence: Floats
    """The presence (R,) of the class after each iteration."""
    hidden: dict[str, Floats]
    """Activations (R, T', rows, columns) of the layers before the last one, by name."""
    agreement: Agreement
    votes: Projection
    """The projected votes for the class, with their weights in the last iteration."""


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

    return draw_figure(fill, width_px=width_px, height_px=height_px)


def _show(axes: Axes, title: str) -> Axes:
    axes.set_visible(True)
    axes.set_title(title, loc="left", fontsize=7)
    return axes


def _fill_classes(panels: Sequence[Axes], view: RoutingView, manifest: Manifest) -> float:
    """Draw the support for the class by iteration, and its votes. Return the largest support."""
    layer, label = manifest.layers[-1], view.label
    maps = on_grid(view.agreement.support[:, label], layer)
    strongest = float(np.abs(maps).max()) or 1.0
    for step, support in enumerate(maps):
        figures = f"agreement {view.agreement.agreement[step, label]:.2f}\n{manifest.presence}"
        axes = _show(panels[step], f"iteration {step + 1}\n{figures} {view.presence[step]:.2f}")
        _draw_support(axes, view.prepared, support / strongest, layer)
    spread = 100 * float(view.votes.explained.sum())
    name = manifest.class_names[label]
    title = f"votes for {name}, in 2-D\n{spread:.0f} % of the spread is visible"
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


def _draw_votes(axes: Axes, view: RoutingView) -> None:
    """Draw votes as dots around their weighted mean."""
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


VIEW = View(path="/routing", handler=routing, needs="trace", max_cost=1 + RESPONSE_COST_ROWS)
