"""Compute presence again from the same votes with other couplings: did routing decide the answer?

The last routed layer alone is computed again; layers of convolutional capsules before it stay as
they were. Axes: N images, R iterations, K classes, I input capsules, D numbers of a pose.

- `uniform`: every vote weighs 1 / K for every class, without a coupling bias. Where routing
  iterates, this is its first iteration, and what a network that routes once would say.
- `one-iteration`: the couplings after one update, which are those of the second iteration.
  Only where there are more than two iterations.
- `no-bias`: without the learned B that self-attention adds to its softmax (Mazzia, Salvetti and
  Chiaberge 2021, equation 3). Only where couplings are no softmax.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from model.bundle.manifest import RoutingKind
from model.canvas import INK
from model.errors import NotOffered
from model.outputs import EM_DECAY, ClassTrace
from model.preprocess import Floats, Prepared
from model.views.answers import CapsuleAnswer, Inner, Part, Vector, answer_fields
from model.views.figure import OPPOSES, SUPPORTS, new_figure, render, show_image
from model.views.net import Encoded, Net, most_present
from model.views.view import TargetQuery, View

Variant = Literal["routed", "uniform", "one-iteration", "no-bias"]
_STYLES: dict[Variant, tuple[str, str]] = {
    "routed": ("as routed", INK),
    "uniform": ("uniform couplings", SUPPORTS),
    "one-iteration": ("after one update", "#d29922"),
    "no-bias": ("without the coupling bias", OPPOSES),
}
"""The title and the colour of each variant."""
_CLASSES = 10
"""The drawing shows at most this many classes: those that are most present in any variant."""
_SHORT = 4
"""Class names of this many letters and more are written aslant."""


def switch_off(trace: ClassTrace[Floats], routing: RoutingKind) -> dict[Variant, Floats]:
    """Compute the presence (K,) of each variant that the network has, `routed` first.

    Args:
        trace: of one image, or of N images: then presence is (N, K).
        routing: how the network routes.
    """
    presence = trace.presence
    variants: dict[Variant, Floats] = {"routed": presence[..., -1, :]}
    if routing == "attention":
        logits = trace.logits[..., -1, :, :]
        softmax = np.exp(logits - np.logaddexp.reduce(logits, axis=-2, keepdims=True))
        variants["uniform"] = _length(np.full_like(softmax, 1 / softmax.shape[-2]), trace.votes)
        if not np.allclose(softmax, trace.couplings[..., -1, :, :], atol=1e-6):
            variants["no-bias"] = _length(softmax, trace.votes)
        return variants
    if routing == "em":
        presence = _scale_alike(presence)
    variants["uniform"] = presence[..., 0, :]
    if presence.shape[-2] > 2:
        variants["one-iteration"] = presence[..., 1, :]
    return variants


def _scale_alike(presence: Floats) -> Floats:
    """Give the activations (..., R, K) of each iteration of EM routing the scale of the last one.

    EM routing scales the logits of activations up from iteration to iteration.
    """
    ramp = 1 - EM_DECAY ** np.arange(1, presence.shape[-2] + 1)[:, None]
    exact = presence.astype(np.float64).clip(1e-30, 1 - 2**-24)
    logits = (np.log(exact) - np.log1p(-exact)) * ramp[-1] / ramp
    return np.asarray(1 / (1 + np.exp(-logits)), np.float32)


def _length(couplings: Floats, votes: Floats) -> Floats:
    """1 - exp(-|s|), s = sum_i c_ki u_ki, of couplings (..., K, I) and votes (..., K, I, D).

    The length that self-attention's squash gives (Mazzia 2021, equation 1).
    """
    sums = np.matmul(couplings[..., None, :], votes)[..., 0, :]
    return np.asarray(1 - np.exp(-np.linalg.norm(sums, axis=-1)))


class RoutingVariant(Part):
    """The answer with one kind of couplings."""

    name: Variant
    title: str = Field(description="In words.")
    labels: list[int] = Field(
        description="The most present class; for pairs of digits the two most present ones, by "
        "label."
    )
    class_names: list[str] = Field(description="Of the labels.")
    lengths: Vector = Field(description="(K,), presence of the classes.")
    changed: bool = Field(description="Whether `labels` differ from the routed answer.")


class RoutingOffAnswer(CapsuleAnswer):
    """The answers of the same votes with other couplings. `length` is that of the routed answer."""

    variants: list[RoutingVariant] = Field(description="The first is the routed answer.")
    changed: bool = Field(description="Whether the labels of any variant differ.")
    class_names: Inner[tuple[str, ...]]
    """Of all classes."""


async def routing_off(net: Net, query: TargetQuery, picture: Prepared) -> RoutingOffAnswer:
    """Ask again with routing switched off.

    The presence is computed from the same votes in up to three variants: with uniform couplings;
    after one update of the couplings, if the network has three iterations or more; without the
    coupling bias, if it has one. Only the routing of the last layer is switched off. If the answer
    changes, it depended on routing. A network that is trained without routing may still be correct.
    """
    manifest, trace = net.manifest, (await net.trace(picture.image)).classes
    if manifest.routing is None:
        raise NotOffered(f"the routing of {manifest.name!r} cannot be switched off")
    presence = await net.aside(switch_off, trace, manifest.routing)
    count = 2 if manifest.of_pairs else 1
    labels = {name: np.sort(most_present(presence[name], count)).tolist() for name in presence}
    variants = [
        RoutingVariant(
            name=name,
            title=_STYLES[name][0],
            labels=labels[name],
            class_names=[manifest.class_names[label] for label in labels[name]],
            lengths=lengths,
            changed=labels[name] != labels["routed"],
        )
        for name, lengths in presence.items()
    ]
    capsule = Encoded(picture, trace.presence[-1], trace.poses[-1]).capsule(query.target)
    return RoutingOffAnswer(
        **answer_fields(manifest, capsule),
        variants=variants,
        changed=any(variant.changed for variant in variants),
        class_names=manifest.class_names,
    )


def draw_variants(answer: RoutingOffAnswer) -> bytes:
    """The image, and for each class a bar of each variant."""
    variants = answer.variants
    presence = np.array([variant.lengths for variant in variants])  # (V, K)
    shown = np.sort(np.argsort(-presence.max(axis=0), kind="stable")[:_CLASSES])
    names = [answer.class_names[label] for label in shown]
    width = 0.8 / len(variants)
    figure = new_figure(900, 320)
    left, right = figure.subplots(1, 2, width_ratios=(1, 4))
    show_image(left, answer.image)
    for column, variant in enumerate(variants):
        at = np.arange(len(shown)) + (column - (len(variants) - 1) / 2) * width
        text = f"{variant.title}: {', '.join(variant.class_names)}"
        lengths = presence[column, shown]
        right.bar(at, lengths, width, color=_STYLES[variant.name][1], label=text)
    turn = 0 if max(map(len, names)) < _SHORT else 30
    right.set_xticks(np.arange(len(shown)), names, rotation=turn)
    right.set(ylabel=answer.presence, ylim=(0, 1))
    right.grid(axis="y", alpha=0.4)
    right.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    return render(figure)


VIEW = View(
    routing_off,
    draw=draw_variants,
    figure=True,
    needs="trace",
)
