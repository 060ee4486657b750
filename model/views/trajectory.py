"""Trace the path of a pose while the image turns, shifts or grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import Field

from model.canvas import enlarge
from model.preprocess import Floats, Prepared
from model.views.agreement import project
from model.views.answers import CapsuleAnswer, Inner, Matrix, Number, Vector, answer_fields
from model.views.equivariance import THUMBNAILS, EquivarianceQuery, Transform
from model.views.figure import draw_figure, spaced
from model.views.net import Net, encode_all, encode_picture
from model.views.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_PX, _HEIGHTS_PX = 760, (120, 600)
"""The drawing's width, and the heights of its images and its path."""


class Trajectory(NamedTuple):
    """The path of a pose through S steps."""

    points: Floats
    """The points (S, 2) in the plane of the two directions along which the pose varies most."""
    explained: Floats
    """The share of the variance along each direction, (2,)."""
    straightness: float
    """The distance of the ends over the length of the path, in [0, 1]; 1 if the pose rests."""


def trace_path(poses: Floats) -> Trajectory:
    """Project the path of poses (S, D) to its principal components, and measure its straightness.

    The straightness index (Batschelet 1981, "Circular Statistics in Biology", section 5.5).
    """
    exact = poses.astype(np.float64)
    points, explained = project(poses, np.ones(len(poses), np.float32))
    path = float(np.linalg.norm(np.diff(exact, axis=0), axis=1).sum())
    apart = float(np.linalg.norm(exact[-1] - exact[0]))
    return Trajectory(points, explained, min(apart / path, 1.0) if path else 1.0)


class TrajectoryQuery(EquivarianceQuery):
    """The parameters of `trajectory`."""


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
    images: Inner[list[Floats]]
    """The image (C, H, W) at each step."""
    presence: Inner[str]
    """The word for it."""


async def trajectory(net: Net, query: TrajectoryQuery, picture: Prepared) -> TrajectoryAnswer:
    """Follow the pose while the image turns, shifts or grows.

    The path lies in the plane of the two directions in which the pose varies most. Other images and
    other transforms have other planes. A straight path means that the transform moves the pose in
    one direction. It does not mean that the prediction is correct, or that the presence stays.
    """
    walk = query.walk()
    capsule = (await encode_picture(net, picture)).capsule(query.target)
    images = await net.aside(walk.images, picture.image)
    presence, poses = await encode_all(net, images)
    path = trace_path(poses[:, capsule.label])
    return TrajectoryAnswer(
        **answer_fields(net.manifest, capsule),
        transform=walk.transform,
        values=list(walk.values),
        lengths=presence[:, capsule.label],
        points=path.points,
        explained=path.explained,
        straightness=path.straightness,
        images=images,
        presence=net.manifest.presence,
    )


def draw(answer: TrajectoryAnswer, query: TrajectoryQuery) -> bytes:  # noqa: ARG001
    """The images, framed in the colours of their points on the path below.

    A point is the larger the more present the class.
    """
    shown = spaced(len(answer.images), THUMBNAILS)
    values = answer.values

    def fill(figure: Figure) -> None:
        figure.set_layout_engine("constrained")
        colours = _colours(len(values))
        strip, plane = figure.subfigures(2, 1, squeeze=False, height_ratios=_HEIGHTS_PX)[:, 0]
        for axes, step in zip(strip.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
            axes.imshow(enlarge(answer.images[step], 1).convert("RGB"), interpolation="nearest")
            axes.set(xticks=[], yticks=[], xlabel=f"{values[step]:.3g}")
            for spine in axes.spines.values():
                spine.set(color=colours[step], linewidth=3)
        axes = plane.subplots()
        _draw_path(axes, answer, colours)
        what = f"pose of {answer.class_name}: {answer.transform}"
        title = f"{what}, straightness {answer.straightness:.2f}"
        axes.set_title(f"{title}; large points: high {answer.presence}", loc="left", fontsize=10)
        for step in shown:
            text, point = f"{values[step]:.3g}", answer.points[step]
            axes.annotate(text, point, (6, 6), textcoords="offset points", fontsize=8)

    return draw_figure(fill, width_px=_WIDTH_PX, height_px=sum(_HEIGHTS_PX))


def _colours(steps: int) -> list[tuple[float, float, float, float]]:
    """Return a colour for each step, from dark blue to yellow."""
    from matplotlib import colormaps  # noqa: PLC0415  matplotlib takes half a second

    return [colormaps["viridis"](share) for share in np.linspace(0, 1, steps)]


def _draw_path(axes: Axes, path: TrajectoryAnswer, colours: Sequence[Any]) -> None:
    """Draw the points and the line through them. Both axes have the same unit."""
    x, y = path.points.T
    axes.plot(x, y, color="#b4b9c0", linewidth=1, zorder=1)
    sizes = 20 + 130 * path.lengths
    axes.scatter(x, y, s=sizes, c=colours, edgecolors="#1b1f24", linewidths=0.5)
    middle = (path.points.min(axis=0) + path.points.max(axis=0)) / 2
    reach = 1.2 * float(np.ptp(path.points, axis=0).max()) / 2 or 1.0
    left_right, up_down = ((centre - reach, centre + reach) for centre in middle)
    across, up = (f"{100 * share:.0f} % of the variance" for share in path.explained)
    axes.set(xlabel=across, ylabel=up, xlim=left_right, ylim=up_down, aspect="equal")
    axes.grid(alpha=0.4)


VIEW = View(
    name="trajectory",
    query=TrajectoryQuery,
    answer=TrajectoryAnswer,
    compute=trajectory,
    large=True,
    draw=draw,
    slow=True,
    needs="decode",
)
