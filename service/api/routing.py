"""`POST /routing`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from model.bundle import Manifest
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
from service.api.schemas import (
    CapsuleAnswer,
    Maps,
    Matrix,
    Number,
    Rounded,
    TargetQuery,
    Vector,
    about,
)
from service.errors import checked
from service.http.route import ANSWER, Drawing, Request
from service.http.uploads import read_picture
from service.pipeline import Capsule, Encoded, check_label
from service.views import RoutingView, draw_routing


class RoutingQuery(TargetQuery):
    """Of `/routing`."""

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
    entropy: Number = Field(
        description="Normalised entropy of the softmax of the logits, from 0 to 1."
    )
    couplings: Matrix | None = Field(
        None,
        description="(K, I); with detail=true. What each vote weighs; self-attention's may be "
        "negative.",
    )
    logits: Matrix | None = Field(None, description="(K, I); with detail=true.")


class HeatMaps(BaseModel):
    """Support: how much of a class's length before its squash comes from where; may be negative."""

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
    """What routing did with one image, and the class that was asked for."""

    capsule: Capsule
    """After the last iteration."""
    trace: Trace
    """Of this image alone: no leading axis."""
    agreement: Agreement
    votes: Projection
    """For the class, by their weights in the last iteration."""

    def view(self) -> RoutingView:
        """What is drawn."""
        capsule, trace = self.capsule, self.trace
        hidden = {name: layer.presence for name, layer in trace.hidden.items()}
        presence = trace.classes.presence[:, capsule.label]
        return RoutingView(
            capsule.prepared, capsule.label, presence, hidden, self.agreement, self.votes
        )


async def routing(request: Request, query: RoutingQuery) -> Drawing[RoutingAnswer]:
    """Trace routing: couplings, agreement, heat maps."""
    manifest = request.pipeline.manifest(query.model, needs="trace")
    check_label(manifest, query.target)
    upload = await read_picture(request)
    request.pipeline.admit(1 + ANSWER)
    prepared = checked((await request.pipeline.prepare([upload], query.spec(manifest)))[0])
    trace = await request.pipeline.trace(manifest, prepared.image)
    routed = await asyncio.to_thread(_find, manifest, prepared, trace, query.target)
    answer = partial(_answer, manifest, routed, detail=query.detail)
    draw = partial(draw_routing, routed.view(), manifest, scale=query.scale)
    return Drawing(answer, manifest, draw, large=True)


def _find(manifest: Manifest, prepared: Prepared, trace: Trace, target: int | None) -> _Routed:
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
            "entropy": agreement.entropy[step],
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
    fields = about(
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
