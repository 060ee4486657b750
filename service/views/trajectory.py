"""`POST /trajectory`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from model.bundle import Manifest
from model.canvas import enlarge
from model.interpret.equivariance import MAX_STEPS, Transform, Walk
from model.interpret.trajectory import Trajectory, trace_path
from model.preprocess import Floats
from service.drawing import draw_figure
from service.http.route import RESPONSE_COST_ROWS, Request, SlowJsonOrPng
from service.views.equivariance import EquivarianceQuery
from service.views.schemas import CapsuleAnswer, Matrix, Number, Vector, answer_fields
from service.views.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_THUMBNAILS = 13
"""The drawing shows at most this many images, evenly spaced."""
_WIDTH_PX, _HEIGHTS_PX = 760, (120, 600)
"""The drawing's width, and the heights of its images and its path."""


class TrajectoryQuery(EquivarianceQuery):
    """The parameters of `/trajectory`."""


class TrajectoryAnswer(CapsuleAnswer):
    """The path of a pose while the image is moved. Lists over steps follow `values`."""

    transform: Transform
    values: list[float]
    lengths: Vector = Field(description="(steps,), presence of the class.")
    points: Matrix = Field(
        description="(steps, 2), centred: the pose in the plane in which it varies most."
    )
    explained: Vector = Field(description="(2,), share of the pose's variance along x and along y.")
    straightness: Number = Field(
        description="Distance of the ends over the length of the path, in all dimensions, from 0 "
        "to 1."
    )


async def trajectory(request: Request, query: TrajectoryQuery) -> SlowJsonOrPng[TrajectoryAnswer]:
    """Follow the pose while the image turns, shifts or grows.

    The path lies in the plane of the two directions along which the pose varies most in these
    steps: planes of other images or transforms are others. Straight is not right: it says that the
    transform is one direction of the pose, not that the presence stays.
    """
    manifest = request.pipeline.manifest(query.model, needs="decode")
    walk = query.walk()
    capsule = await query.read_capsule(
        request, manifest, extra_rows=query.steps + RESPONSE_COST_ROWS
    )
    images = await asyncio.to_thread(walk.images, capsule.prepared.image)
    presence, poses = await request.pipeline.encode_all(manifest, images)
    path, lengths = trace_path(poses[:, capsule.label]), presence[:, capsule.label]
    fields = answer_fields(
        manifest,
        capsule,
        transform=walk.transform,
        values=walk.values,
        lengths=lengths,
        points=path.points,
        explained=path.explained,
        straightness=path.straightness,
    )
    name = manifest.class_names[capsule.label]
    draw = partial(draw_trajectory, manifest, walk, images, name=name, path=path, lengths=lengths)
    return SlowJsonOrPng(partial(TrajectoryAnswer, **fields), manifest, draw, large=True)


def draw_trajectory(
    manifest: Manifest,
    walk: Walk,
    images: list[Floats],
    *,
    name: str,
    path: Trajectory,
    lengths: Floats,
) -> bytes:
    """Draw images, framed in the colours of their points on the path below, and return a PNG.

    Args:
        manifest: of the network.
        walk: its S values are written at the images.
        images: S images (C, H, W).
        name: of the class that is followed.
        path: of its pose.
        lengths: (S,), its presence; a point is the larger the more present the class.
    """
    steps = len(images)
    shown = np.unique(np.linspace(0, steps - 1, min(steps, _THUMBNAILS)).round().astype(int))

    def fill(figure: Figure) -> None:
        figure.set_layout_engine("constrained")
        colours = _colours(steps)
        strip, plane = figure.subfigures(2, 1, squeeze=False, height_ratios=_HEIGHTS_PX)[:, 0]
        for axes, step in zip(strip.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
            axes.imshow(enlarge(images[step], 1).convert("RGB"), interpolation="nearest")
            axes.set(xticks=[], yticks=[], xlabel=f"{walk.values[step]:.3g}")
            for spine in axes.spines.values():
                spine.set(color=colours[step], linewidth=3)
        axes = plane.subplots()
        _draw_path(axes, path, colours, 20 + 130 * lengths)
        title = f"pose of {name}: {walk.transform}, straightness {path.straightness:.2f}"
        axes.set_title(f"{title}; large points: high {manifest.presence}", loc="left", fontsize=10)
        for step in shown:
            text = f"{walk.values[step]:.3g}"
            axes.annotate(text, path.points[step], (6, 6), textcoords="offset points", fontsize=8)

    return draw_figure(fill, width_px=_WIDTH_PX, height_px=sum(_HEIGHTS_PX))


def _colours(steps: int) -> list[tuple[float, float, float, float]]:
    """Return a colour for each step, from dark blue to yellow."""
    from matplotlib import colormaps  # noqa: PLC0415  matplotlib takes half a second

    return [colormaps["viridis"](share) for share in np.linspace(0, 1, steps)]


def _draw_path(axes: Axes, path: Trajectory, colours: Sequence[Any], sizes: Floats) -> None:
    """Draw the points and the line through them. Both axes have the same unit."""
    x, y = path.points.T
    axes.plot(x, y, color="#b4b9c0", linewidth=1, zorder=1)
    axes.scatter(x, y, s=sizes, c=colours, edgecolors="#1b1f24", linewidths=0.5)
    middle = (path.points.min(axis=0) + path.points.max(axis=0)) / 2
    reach = 1.2 * float(np.ptp(path.points, axis=0).max()) / 2 or 1.0
    left_right, up_down = ((centre - reach, centre + reach) for centre in middle)
    across, up = (f"{100 * share:.0f} % of the variance" for share in path.explained)
    axes.set(xlabel=across, ylabel=up, xlim=left_right, ylim=up_down, aspect="equal")
    axes.grid(alpha=0.4)


VIEW = View(
    path="/trajectory",
    handler=trajectory,
    needs="decode",
    max_cost=1 + MAX_STEPS + RESPONSE_COST_ROWS,
)
