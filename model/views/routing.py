"""Trace routing: how capsules vote for classes, how well their votes agree, and where.

Notation (Sabour et al., 2017, section 2 and procedure 1): input capsule i votes u_ki for class
capsule k, its vote has the weight w_ki, and v_k is the pose that the votes add up to. Arrays have
the axes R (iterations), K (classes), I (input capsules), D (pose): weights (R, K, I), votes
(K, I, D) and poses (R, K, D). The weight is the coupling c_ki; for EM routing it is the assignment
r_ki times the activation a_i: what capsule i weighs in the mean v_k. Self-attention adds a learned
B to the softmax, so its couplings may be negative: such a vote is subtracted from the class's sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from model.bundle import Layer, Manifest
from model.canvas import INK, fit_scale
from model.outputs import Trace
from model.preprocess import Floats, Prepared
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
from model.views.figure import OPPOSES, SUPPORTS, new_figure, render, show_support
from model.views.net import Encoded, Net
from model.views.view import SCALE_TEXT, TargetQuery, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

_ROUNDING = 1e-3
"""The tolerance of the sum of a capsule's couplings."""
_TINY = 1e-12
"""A constant that is added to divisors."""
_GAP_PX, _TITLE_PX, _SCALE_PX, _TICK_PX = 16, 56, 46, 16
"""The room between panels, for titles above them, for the scale of support below them, and for half
a number of that to either side."""
_MAX_PX = 2_500_000
"""The most pixels of all panels: matplotlib takes half a second for them."""


def measure_support(weights: Floats, votes: Floats, poses: Floats) -> Floats:
    """Compute each input capsule's part of a pose's length: w_ki <u_ki, v_k> / |v_k|, (R, K, I).

    The sum over i is the length before the squash, less what a bias adds (EM: the length of the
    pose, times the weight of all capsules). A part is negative if a vote of positive weight points
    away from the pose, or a vote of negative weight points along the pose.
    """
    directions = poses / (np.linalg.norm(poses, axis=-1, keepdims=True) + _TINY)
    return np.asarray(weights * np.einsum("kid,rkd->rki", votes, directions))


def measure_agreement(support: Floats, weights: Floats, votes: Floats) -> Floats:
    """Compute how well the votes agree, from -1 to 1, (R, K).

    This is the support (R, K, I), divided by what it would be if all weighted votes lay along the
    pose: a_k = sum_i w_ki <u_ki, v_k> / (|v_k| sum_i |w_ki| |u_ki|). Without a bias this is the
    mean resultant length of the weighted votes (Mardia and Jupp, "Directional Statistics", section
    2.3).
    """
    most = (np.abs(weights) * np.linalg.norm(votes, axis=-1)).sum(axis=-1)
    return np.asarray(support.sum(axis=-1) / (most + _TINY))


def measure_entropy(couplings: Floats, logits: Floats, input_presence: Floats) -> Floats | None:
    """Compute the mean entropy of the input capsules' couplings, from 0 to 1, (R,).

    h = -sum_k s_ki log s_ki / log K with s the softmax over classes of logits (R, K, I), averaged
    over i with their presence (I,) as weights. 0 means that each capsule serves one class, 1 that
    it serves all alike. There is none if couplings (R, K, I) are no shares, which are not negative
    and sum to one: self-attention adds B to its softmax.
    """
    sums = couplings.sum(axis=1)
    if (couplings < 0).any() or not np.allclose(sums, 1, atol=_ROUNDING):
        return None
    logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    undecided = -(np.exp(logs) * logs).sum(axis=1) / np.log(logits.shape[1])  # (R, I)
    return np.asarray(undecided @ input_presence / (input_presence.sum() + _TINY))


def project(votes: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Project votes (I, D), each weighted by its coupling's size (I,), where they differ most.

    The axes are the two leading eigenvectors of C = sum_i w_i (u_i - m)(u_i - m)' / sum_i w_i with
    m = sum_i w_i u_i / sum_i w_i and w = |weights|. An eigenvector's sign is free: the component of
    largest size is made positive, so that equal votes are always drawn alike.

    Returns:
        The points (I, 2), with the weighted mean at the origin, and the share of the weighted
        variance along each axis, (2,).
    """
    sizes = np.abs(weights).astype(np.float64)
    shares = sizes / (sizes.sum() + _TINY)
    centred = votes - shares @ votes
    variances, axes = np.linalg.eigh((centred * shares[:, None]).T @ centred)
    plane = axes[:, [-1, -2]]  # eigenvalues ascend
    largest = np.abs(plane).argmax(axis=0)
    plane = plane * np.where(plane[largest, [0, 1]] < 0, -1, 1)
    explained = variances[[-1, -2]] / (variances.sum() + _TINY)
    return centred @ plane, np.maximum(explained, 0)


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
    extent_px: Inner[tuple[float, float, float, float]]
    """The area of the grid in the image: left, right, bottom, top."""
    points: Inner[Floats]
    """The votes for the label, (I, 2): `votes.points` whatever `detail` is."""
    weights: Inner[Floats]
    """The weights of these votes in the last iteration, (I,)."""


async def routing(net: Net, query: RoutingQuery, picture: Prepared) -> RoutingAnswer:
    """Trace routing: couplings, agreement, heat maps."""
    trace = await net.trace(picture.image)
    return await net.aside(_answer, net.manifest, query, picture, trace)


def _answer(
    manifest: Manifest, query: RoutingQuery, picture: Prepared, trace: Trace[Floats]
) -> RoutingAnswer:
    layer, classes = manifest.layers[-1], trace.classes
    capsule = Encoded(picture, classes.presence[-1], classes.poses[-1]).capsule(query.target)
    weights = classes.couplings
    if manifest.presence == "activation":  # elsewhere the length of a vote shows how present it is
        weights = weights * classes.input_presence
    support = measure_support(weights, classes.votes, classes.poses)
    agreement = measure_agreement(support, weights, classes.votes)
    entropy = measure_entropy(classes.couplings, classes.logits, classes.input_presence)
    cells = support.reshape(*support.shape[:2], layer.types, layer.rows, layer.columns)
    last = weights[-1, capsule.label]
    points, explained = project(classes.votes[capsule.label], last)
    detail = query.detail
    return RoutingAnswer(
        **answer_fields(manifest, capsule),
        types=layer.types,
        rows=layer.rows,
        columns=layer.columns,
        iterations=[
            RoutingIteration(
                lengths=classes.presence[step],
                agreement=agreement[step],
                entropy=None if entropy is None else entropy[step],
                couplings=classes.couplings[step] if detail else None,
                logits=classes.logits[step] if detail else None,
            )
            for step in range(layer.iterations)
        ],
        heat_maps=HeatMaps(grid=cells.sum(axis=-3), types=cells.sum(axis=(-2, -1))),
        votes=Votes(
            explained=explained,
            points=points if detail else None,
            couplings=last if detail else None,
        ),
        layers=[
            HiddenLayer(
                name=name,
                iterations=[
                    HiddenIteration(
                        activations=maps.mean(axis=(1, 2)),
                        maps=maps if detail else None,
                        assignments=shares,
                    )
                    for maps, shares in zip(hidden.presence, hidden.couplings, strict=True)
                ],
            )
            for name, hidden in trace.hidden.items()
        ],
        extent_px=_extent_px(layer),
        points=points,
        weights=last,
    )


def _extent_px(layer: Layer) -> tuple[float, float, float, float]:
    """The area of a layer's grid in the image: left, right, bottom, top; 0 is a pixel's middle."""
    first = layer.offset_px + (layer.field_px - layer.stride_px - 1) / 2
    right, bottom = (first + layer.stride_px * count for count in (layer.columns, layer.rows))
    return first, right, bottom, first


def draw_routing(answer: RoutingAnswer, scale: int) -> bytes:
    """A panel for each iteration and one for the votes.

    In the iterations' panels every cell of the grid is a square around the middle of what its
    capsules see, coloured by its support, all panels on the scale below them. In that of the votes,
    each dot is a vote, larger and darker the more it weighs, blue if its weight is negative; the
    plus is their mean.
    """
    from matplotlib.text import Text  # noqa: PLC0415  matplotlib takes half a second

    count = len(answer.iterations) + 1
    scale = fit_scale(scale, (count, *answer.image.shape), max_px=_MAX_PX)
    _, height, width = (scale * size for size in answer.image.shape)
    width_px = _GAP_PX + count * (width + _GAP_PX)
    height_px = _GAP_PX + _TITLE_PX + height + _SCALE_PX
    figure = new_figure(width_px, height_px, constrained=False)
    grid = {
        "left": _GAP_PX / width_px,
        "right": 1 - _GAP_PX / width_px,
        "bottom": (_GAP_PX + _SCALE_PX) / height_px,
        "top": 1 - _TITLE_PX / height_px,
        "wspace": _GAP_PX / width,
    }
    shown = _fill_panels(figure.subplots(1, count, gridspec_kw=grid), answer)
    left, length = _GAP_PX + _TICK_PX, width - 2 * _TICK_PX
    place = (left / width_px, 0.7 * _SCALE_PX / height_px, length / width_px, 8 / height_px)
    low, high = shown.get_clim()
    ticks, bar = [low, 0, high], figure.add_axes(place)
    figure.colorbar(shown, bar, orientation="horizontal", ticks=ticks, format="%.2g")
    bar.set_xlabel("support, by place", labelpad=1)
    for text in figure.findobj(Text):
        text.set_fontsize(7)
    return render(figure)


def _fill_panels(panels: Sequence[Axes], answer: RoutingAnswer) -> AxesImage:
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


VIEW = View(
    routing,
    draw=draw_routing,
    figure=True,
    needs="trace",
)
