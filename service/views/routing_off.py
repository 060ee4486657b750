"""`POST /routing-off`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, Field

from model.bundle import Manifest
from model.canvas import enlarge
from model.interpret.routing_off import TITLES, Variant, answers
from model.interpret.routing_off import routing_off as switch_off
from model.preprocess import Floats
from model.runtime import ClassTrace
from service.drawing import draw_figure
from service.errors import NotOffered, unwrap
from service.http.route import RESPONSE_COST_ROWS, Request, SlowJsonOrPng
from service.http.uploads import read_picture
from service.pipeline import Encoded, check_label
from service.views.schemas import CapsuleAnswer, TargetQuery, Vector, answer_fields
from service.views.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CLASSES = 10
"""The drawing shows at most this many classes: those that are most present in any variant."""
_SHORT = 4
"""Class names of this many letters and more are written aslant."""
_COLOURS: dict[Variant, str] = {
    "routed": "#1b1f24",
    "uniform": "#d65400",
    "one-iteration": "#d29922",
    "no-bias": "#0969da",
}


class RoutingOffQuery(TargetQuery):
    """The parameters of `/routing-off`."""


class RoutingVariant(BaseModel):
    """The answer with one kind of couplings."""

    name: Variant
    title: str = Field(description="In words.")
    labels: list[int] = Field(
        description="The most present class; for pairs of digits the two most present ones, by "
        "label."
    )
    class_names: list[str] = Field(description="Of the labels.")
    lengths: Vector = Field(description="(K,), presence of the classes.")
    changed: bool = Field(description="Whether `labels` are others than as routed.")


class RoutingOffAnswer(CapsuleAnswer):
    """The answers of the same votes with other couplings. `length` is as routed."""

    variants: list[RoutingVariant] = Field(description="The first one is as routed.")
    changed: bool = Field(description="Whether the labels of any variant are others.")


async def routing_off(request: Request, query: RoutingOffQuery) -> SlowJsonOrPng[RoutingOffAnswer]:
    """Ask again with routing switched off.

    Presence from the same votes with uniform couplings, after one iteration, and without the
    coupling bias, where the network has iterations and a bias. Only the last layer's routing is
    switched off. The network was trained with it: an answer that changes needed routing as it was
    learnt; it does not say that a network trained without would be wrong.
    """
    manifest = request.pipeline.manifest(query.model, needs="trace")
    check_label(manifest, query.target)
    upload = await read_picture(request)
    request.pipeline.admit(1 + RESPONSE_COST_ROWS)
    prepared = unwrap((await request.pipeline.prepare([upload], query.spec(manifest)))[0])
    trace = (await request.pipeline.trace(manifest, prepared.image)).classes
    variants = await asyncio.to_thread(_find_variants, manifest, trace)
    capsule = Encoded(prepared, trace.presence[-1], trace.poses[-1]).capsule(query.target)
    changed = any(variant.changed for variant in variants)
    fields = answer_fields(manifest, capsule, variants=variants, changed=changed)
    draw = partial(draw_routing_off, manifest, prepared.image, variants)
    return SlowJsonOrPng(partial(RoutingOffAnswer, **fields), manifest, draw, large=True)


def _find_variants(manifest: Manifest, trace: ClassTrace[Floats]) -> list[RoutingVariant]:
    """Compute the variants of one image from its trace, which has no leading axis.

    Raises:
        NotOffered: this routing cannot be switched off.
    """
    batch = ClassTrace(*(field[None] for field in trace))
    try:
        variants = switch_off(batch, activated=manifest.presence == "activation")
    except ValueError as error:
        raise NotOffered(f"{manifest.name!r}: {error}") from error
    count = 1 if manifest.mask_threshold is None else 2
    labels = {name: answers(presence, count)[0].tolist() for name, presence in variants.items()}
    return [
        RoutingVariant(
            name=name,
            title=TITLES[name],
            labels=labels[name],
            class_names=[manifest.class_names[label] for label in labels[name]],
            lengths=presence[0],
            changed=labels[name] != labels["routed"],
        )
        for name, presence in variants.items()
    ]


def draw_routing_off(manifest: Manifest, image: Floats, variants: list[RoutingVariant]) -> bytes:
    """The image (C, H, W), and for each class a bar of each variant, as a PNG."""
    presence = np.array([variant.lengths for variant in variants])  # (V, K)
    shown = np.sort(np.argsort(-presence.max(axis=0), kind="stable")[:_CLASSES])
    names = [manifest.class_names[label] for label in shown]
    width = 0.8 / len(variants)

    def fill(figure: Figure) -> None:
        figure.set_layout_engine("constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 4))
        left.imshow(enlarge(image, 1).convert("RGB"), interpolation="nearest")
        left.set(xticks=[], yticks=[])
        for column, variant in enumerate(variants):
            at = np.arange(len(shown)) + (column - (len(variants) - 1) / 2) * width
            text = f"{variant.title}: {', '.join(variant.class_names)}"
            lengths = presence[column, shown]
            right.bar(at, lengths, width, color=_COLOURS[variant.name], label=text)
        turn = 0 if max(map(len, names)) < _SHORT else 30
        right.set_xticks(np.arange(len(shown)), names, rotation=turn)
        right.set(ylabel=manifest.presence, ylim=(0, 1))
        right.grid(axis="y", alpha=0.4)
        right.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)

    return draw_figure(fill, width_px=900, height_px=320)


VIEW = View(
    path="/routing-off", handler=routing_off, needs="trace", max_cost=1 + RESPONSE_COST_ROWS
)
