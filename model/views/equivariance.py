"""Measure whether a class's length stays the same, and its pose changes, as the image moves.

A capsule's length is meant to be invariant: a moved seven is as much a seven. Its direction is
meant to be equivariant: it changes as the image does (paper, section 1). So an image is moved,
rotated or scaled step by step, by fractions of a pixel, and encoded at every step. The poses of the
steps form a path.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field

from model.bundle import Manifest
from model.canvas import INK
from model.errors import InvalidParameter
from model.preprocess import Floats, Prepared
from model.views.answers import CapsuleAnswer, Inner, Matrix, Number, Poses, Vector, answer_fields
from model.views.figure import name_chart, new_figure, render, show_strip, space_evenly
from model.views.net import Net, encode_all, encode_picture
from model.views.routing import project
from model.views.view import TargetQuery, View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection

Doubles = NDArray[np.float64]
Transform = Literal["shift-x", "shift-y", "turn", "scale"]
MAX_STEPS = 64


class _Range(NamedTuple):
    """The values of a transform: the limits, the default ends, and the unit."""

    low: float
    high: float
    first: float
    last: float
    unit: str


RANGES: dict[Transform, _Range] = {
    "shift-x": _Range(-14, 14, -6, 6, "pixels to the right"),
    "shift-y": _Range(-14, 14, -6, 6, "pixels down"),
    "turn": _Range(-180, 180, -60, 60, "degrees counter-clockwise"),
    "scale": _Range(0.25, 4, 0.6, 1.4, "times the size"),
}
_STRIP_PX, _CHART_PX, _PATH_PX = 100, 240, 560
"""The heights of the images, of a chart and of the path in the drawing."""
_COLOURED, _OTHERS = 3, "#b4b9c0"
"""This many pose dimensions are drawn in colour, the others in this grey."""
Value = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]


def transform_image(image: Floats, transform: Transform, value: float) -> Floats:
    """Move an image (..., H, W) in [0, 1] about its middle; all channels move alike.

    Pixels are interpolated bilinearly. Outside of the image there is black: what leaves the frame
    is lost, and a stroke at the very edge fades within a pixel.

    Args:
        value: in pixels to the right (`shift-x`) or down (`shift-y`), in degrees counter-clockwise
            (`turn`), or the factor by which the image grows (`scale`).
    """
    angle = math.radians(value) if transform == "turn" else 0
    factor = value if transform == "scale" else 1
    offset = np.array([value * (transform == "shift-x"), value * (transform == "shift-y")])
    cosine, sine = math.cos(angle) / factor, math.sin(angle) / factor
    inverse = np.array([[cosine, -sine], [sine, cosine]])  # y points down
    height, width = image.shape[-2:]
    middle = np.array([width, height]) / 2
    start = middle - inverse @ (middle + offset) + 1  # a row and a column of black lie around
    framed = np.pad(image.reshape(-1, height, width), ((0, 0), (1, 1), (1, 1)))
    coefficients = np.column_stack((inverse, start)).ravel().tolist()
    planes = [
        Image.fromarray(plane).transform(
            (width, height), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR
        )
        for plane in framed
    ]
    return np.stack([np.asarray(plane) for plane in planes]).reshape(image.shape)


def angles_deg(poses: Floats, still: Floats) -> Floats:
    """Return the angles between poses (S, D) and one pose (D,), in degrees, (S,).

    By Kahan's formula for unit vectors: the cosine of a small angle rounds to 1.
    """
    vectors = np.vstack((still, poses)).astype(np.float64)
    other, *ones = vectors / (np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-12)
    apart = np.linalg.norm(ones - other, axis=1)
    return np.asarray(np.degrees(2 * np.arctan2(apart, np.linalg.norm(ones + other, axis=1))))


def straightness(poses: Floats) -> float:
    """The distance of the ends of a path (S, D) over its length, in [0, 1]; 1 if the pose rests.

    The straightness index (Batschelet 1981, "Circular Statistics in Biology", section 5.5).
    """
    exact = poses.astype(np.float64)
    length = float(np.linalg.norm(np.diff(exact, axis=0), axis=1).sum())
    return min(float(np.linalg.norm(exact[-1] - exact[0])) / length, 1.0) if length else 1.0


class EquivarianceQuery(TargetQuery):
    """The parameters of `equivariance`."""

    transform: Transform = Field("turn", description="What is done to the fitted image.")
    start: Value | None = Field(
        None,
        description="The first value: pixels to the right or down, degrees counter-clockwise, or a "
        "factor; by default -6, -60 or 0.6.",
    )
    stop: Value | None = Field(
        None, description="The last value, above `start`; by default 6, 60 or 1.4."
    )
    steps: int = Field(13, ge=2, le=MAX_STEPS, description="Number of images, both ends included.")

    max_rows = MAX_STEPS

    def plan(self) -> list[float]:
        """Return the values of the transform, evenly spaced, both ends included.

        Raises:
            InvalidParameter: an end is out of the transform's limits, or there is no way between.
        """
        limits = RANGES[self.transform]
        first = limits.first if self.start is None else self.start
        last = limits.last if self.stop is None else self.stop
        if not (limits.low <= first < last <= limits.high):
            raise InvalidParameter(
                f"{self.transform} goes from {limits.low:g} to {limits.high:g}, start < stop; "
                f"not {first:g} to {last:g}",
                parameter="start",
            )
        values: list[float] = np.linspace(first, last, self.steps).round(6).tolist()
        return values

    def rows(self, manifest: Manifest) -> int:  # noqa: ARG002
        """Each step is encoded."""
        return len(self.plan())


class EquivarianceAnswer(CapsuleAnswer):
    """The length and pose of a class while the image is transformed.

    Lists over steps follow `values`.
    """

    transform: Transform
    values: list[float]
    lengths: Vector = Field(description="Presence of the class at each step.")
    labels: list[int] = Field(description="The most present class at each step.")
    angles_deg: Vector | None = Field(
        None, description="Angle to the untransformed pose at each step; null without poses."
    )
    poses: Poses | None = Field(
        None, description="Pose of the class at each step; null without poses."
    )
    points: Matrix | None = Field(
        None,
        description="(steps, 2), centred: the path of the pose, in the plane in which it varies "
        "most; null without poses.",
    )
    explained: Vector | None = Field(
        None,
        description="(2,), share of the pose's variance along x and along y of `points`; null "
        "without poses.",
    )
    straightness: Number | None = Field(
        None,
        description="Distance between the ends of the path, divided by the length of the path, in "
        "all dimensions, from 0 to 1; null without poses.",
    )
    images: Inner[list[Floats]]
    """The image (C, H, W) at each step."""
    rivals: Inner[Floats]
    """(steps,), presence of the most present other class."""


async def equivariance(net: Net, query: EquivarianceQuery, picture: Prepared) -> EquivarianceAnswer:
    """Transform an image step by step and ask the network each time.

    In an equivariant network, the length stays and the pose changes with the image. The drawing
    projects the path of the pose on the plane of the two directions in which the pose varies most.
    Each drawing has a plane of its own. A straight path means that the transform moves
    the pose in one direction. It does not mean that the prediction is correct, or that the presence
    stays.
    """
    values = query.plan()
    capsule = (await encode_picture(net, picture)).capsule(query.target)
    images = await net.aside(
        lambda: [transform_image(picture.image, query.transform, value) for value in values]
    )
    presence, all_poses = await encode_all(net, images)
    path: dict[str, Any] = {}
    if net.manifest.class_dim:
        poses = all_poses[:, capsule.label]
        points, explained = project(poses, np.ones(len(poses), np.float32))
        path = {"poses": poses, "points": points, "explained": explained}
        path |= {"angles_deg": angles_deg(poses, capsule.pose), "straightness": straightness(poses)}
    return EquivarianceAnswer(
        **answer_fields(net.manifest, capsule),
        transform=query.transform,
        values=values,
        lengths=presence[:, capsule.label],
        labels=presence.argmax(axis=1).tolist(),
        **path,
        images=images,
        rivals=np.delete(presence, capsule.label, axis=1).max(axis=1, initial=0),
    )


def draw_equivariance(answer: EquivarianceAnswer) -> bytes:
    """The images, presence and, where there are poses, their angles, numbers and path."""
    values, poses, angles = answer.values, answer.poses, answer.angles_deg
    charts = 1 if poses is None else 3
    heights = [_STRIP_PX, _CHART_PX * charts] + [_PATH_PX] * (poses is not None)
    shown = space_evenly(len(values))
    titles = [f"{values[step]:.3g}" for step in shown]
    figure = new_figure(900, sum(heights))
    strip, middle, *path = figure.subfigures(
        len(heights), 1, squeeze=False, height_ratios=heights
    ).flat
    panels = show_strip(strip, [answer.images[step] for step in shown], titles)
    first, *others = middle.subplots(charts, 1, sharex=True, squeeze=False).flat
    first.plot(values, answer.lengths, label=answer.class_name)
    first.plot(values, answer.rivals, label="most present other class")
    first.set_ylim(0, 1)
    name_chart(first, answer.presence)
    if poses is not None:
        others[0].plot(values, angles)
        title = f"degrees between the pose of {answer.class_name} and that of the unmoved picture"
        name_chart(others[0], title)
        _draw_poses(others[1], values, poses)
        points = _draw_path(path[0].subplots(), answer, dict(zip(shown, titles, strict=True)))
        for axes, colour in zip(panels, points.to_rgba(np.array(shown)), strict=True):
            axes.spines[:].set(color=colour, linewidth=3)
    (others or [first])[-1].set_xlabel(RANGES[answer.transform].unit)
    return render(figure)


def _draw_poses(axes: Axes, values: list[float], poses: Floats) -> None:
    """Draw pose dimensions (S, D): those of the largest range in colour, with a legend."""
    most = np.argsort(-np.ptp(poses, axis=0), kind="stable")[:_COLOURED]
    axes.plot(values, np.delete(poses, most, axis=1), color=_OTHERS, linewidth=0.7)
    for dim in np.sort(most):
        axes.plot(values, poses[:, dim], label=f"dimension {dim}")
    title = f"the {poses.shape[1]} numbers of the pose; in colour, those that change most"
    name_chart(axes, title)


def _draw_path(axes: Axes, answer: EquivarianceAnswer, texts: dict[int, str]) -> PathCollection:
    """Draw the path of the pose. A point is the larger, the higher the presence of the class."""
    assert answer.points is not None
    assert answer.explained is not None
    x, y = answer.points.T
    axes.plot(x, y, color=_OTHERS, linewidth=1, zorder=1)
    sizes = 20 + 130 * answer.lengths
    points = axes.scatter(x, y, sizes, range(len(x)), edgecolors=INK, linewidths=0.5)
    for step, text in texts.items():
        axes.annotate(text, answer.points[step], (6, 6), textcoords="offset points", fontsize=8)
    across, up = (f"{100 * share:.0f} % of the variance" for share in answer.explained)
    axes.set(xlabel=across, ylabel=up)
    axes.set_aspect("equal", "datalim")
    axes.margins(0.1)
    name_chart(axes, f"path of the pose, straightness {answer.straightness:.2f}")
    return points


VIEW = View(
    equivariance,
    draw=draw_equivariance,
    figure=True,
)
