"""Trace routing: couplings, agreement, heat maps."""

from __future__ import annotations

from typing import TypeVar

from pydantic import Field

from model.bundle import Layer, Manifest
from model.outputs import Trace
from model.preprocess import Floats, Prepared
from model.views.agreement import by_cell, project, trace_agreement
from model.views.answers import (
    CapsuleAnswer,
    Inner,
    Maps,
    MapStack,
    Matrix,
    Number,
    Part,
    Vector,
    answer_fields,
    is_none,
)
from model.views.net import Encoded, Net
from model.views.query import SCALE_TEXT, TargetQuery
from model.views.routing_figure import draw_routing
from model.views.view import View

T = TypeVar("T")


class RoutingQuery(TargetQuery):
    """The parameters of `routing`."""

    detail: bool = Field(
        default=True,
        description="`false` leaves out arrays with a number for each input capsule (couplings, "
        "logits and votes: half a megabyte for the paper's network) and maps of hidden layers.",
    )
    scale: int = Field(8, ge=5, le=16, description=SCALE_TEXT)


class RoutingIteration(Part):
    """The state after one iteration. Lists over classes are by label."""

    lengths: Vector = Field(description="(K,), presence of the classes.")
    agreement: Vector = Field(description="(K,), -1 to 1: how well the votes agree.")
    entropy: Number | None = Field(
        description="Normalised entropy of the couplings, from 0 to 1: how undecided the input "
        "capsules are. Null where couplings are no distribution over the classes."
    )
    couplings: Matrix | None = Field(
        None,
        description="(K, I); with detail=true. The weight of each vote; in self-attention it "
        "may be negative.",
        exclude_if=is_none,
    )
    logits: Matrix | None = Field(None, description="(K, I); with detail=true.", exclude_if=is_none)


class HeatMaps(Part):
    """Maps of support: each cell's part of a class's length before its squash; may be negative."""

    grid: MapStack = Field(description="(R, K, rows, columns), from the top.")
    types: Maps = Field(description="(R, K, T): summed over the grid.")


class Votes(Part):
    """The votes for the label in the plane in which they differ most."""

    explained: Vector = Field(description="Share of their variance along x and along y.")
    points: Matrix | None = Field(
        None, description="(I, 2), centred; with detail=true.", exclude_if=is_none
    )
    couplings: Vector | None = Field(
        None, description="(I,), the last; with detail=true.", exclude_if=is_none
    )


class HiddenIteration(Part):
    """A layer of convolutional capsules after one iteration."""

    activations: Vector = Field(description="(T',): means over the layer's grid.")
    maps: Maps | None = Field(
        None, description="(T', rows, columns); with detail=true.", exclude_if=is_none
    )
    assignments: Matrix = Field(description="(T', T): shares of each type of input.")


class HiddenLayer(Part):
    """A routed layer before the last one."""

    name: str
    iterations: list[HiddenIteration]


class RoutingAnswer(CapsuleAnswer):
    """The state of routing after each iteration.

    Input capsule i has type t, row y and column x: i = (t * rows + y) * columns + x.
    """

    types: int = Field(description="T, types of the capsules that vote for classes.")
    rows: int = Field(description="Rows of the grid of these capsules.")
    columns: int
    iterations: list[RoutingIteration]
    heat_maps: HeatMaps
    votes: Votes
    layers: list[HiddenLayer] = Field(description="Routed layers before the last one, if any.")
    cells_px: Inner[tuple[float, float, float]]
    """The grid's squares in the image: left and top, right, bottom."""
    points: Inner[Floats]
    """The votes for the label, (I, 2): `votes.points` whatever `detail` is."""
    weights: Inner[Floats]
    """The weights of these votes in the last iteration, (I,)."""
    hidden: Inner[dict[str, Floats]]
    """Activations (R, T', rows, columns) of `layers`, by name."""


async def routing(net: Net, query: RoutingQuery, picture: Prepared) -> RoutingAnswer:
    """Trace routing: couplings, agreement, heat maps."""
    trace = await net.trace(picture.image)
    return await net.aside(_answer, net.manifest, query, picture, trace)


def _answer(
    manifest: Manifest, query: RoutingQuery, picture: Prepared, trace: Trace[Floats]
) -> RoutingAnswer:
    layer, classes = manifest.layers[-1], trace.classes
    capsule = Encoded(picture, classes.presence[-1], classes.poses[-1]).capsule(query.target)
    measured = trace_agreement(classes, activated=manifest.presence == "activation")
    support = by_cell(measured.support, layer)
    weights = measured.weights[-1, capsule.label]
    votes = project(classes.votes[capsule.label], weights)

    def detailed(values: T) -> T | None:
        return values if query.detail else None

    return RoutingAnswer(
        **answer_fields(manifest, capsule),
        types=layer.types,
        rows=layer.rows,
        columns=layer.columns,
        iterations=[
            RoutingIteration(
                lengths=classes.presence[step],
                agreement=measured.agreement[step],
                entropy=None if measured.entropy is None else measured.entropy[step],
                couplings=detailed(classes.couplings[step]),
                logits=detailed(classes.logits[step]),
            )
            for step in range(layer.iterations)
        ],
        heat_maps=HeatMaps(grid=support.sum(axis=-3), types=support.sum(axis=(-2, -1))),
        votes=Votes(
            explained=votes.explained, points=detailed(votes.points), couplings=detailed(weights)
        ),
        layers=[
            HiddenLayer(
                name=name,
                iterations=[
                    HiddenIteration(
                        activations=maps.mean(axis=(1, 2)), maps=detailed(maps), assignments=shares
                    )
                    for maps, shares in zip(hidden.presence, hidden.couplings, strict=True)
                ],
            )
            for name, hidden in trace.hidden.items()
        ],
        cells_px=_cells_px(layer),
        points=votes.points,
        weights=weights,
        hidden={name: hidden.presence for name, hidden in trace.hidden.items()},
    )


def _cells_px(layer: Layer) -> tuple[float, float, float]:
    """The squares of a layer's grid in the image, in pixels: left and top, right, bottom."""
    first = layer.offset_px + (layer.field_px - layer.stride_px) / 2
    right, bottom = (first + layer.stride_px * count for count in (layer.columns, layer.rows))
    return first, right, bottom


VIEW = View(
    routing,
    large=True,
    draw=draw_routing,
    slow=True,
    needs="trace",
)
