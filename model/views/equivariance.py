"""Measure whether a class's length stays the same, and its pose changes, as the image moves.

A capsule's length is meant to be invariant: a moved seven is as much a seven. Its direction is
meant to be equivariant: it changes as the image does (paper, section 1). So an image is moved,
rotated or scaled step by step, by fractions of a pixel, and encoded at every step. The poses of the
steps form a path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from model.bundle import Manifest
from model.errors import InvalidParameter
from model.preprocess import Floats, Prepared
from model.views.answers import CapsuleAnswer, Inner, Matrix, Number, Poses, Vector, answer_fields
from model.views.figure import draw_figure, show_strip, spaced
from model.views.net import Net, encode_all, encode_picture
from model.views.path import Path, draw_path, step_colours, trace_path
from model.views.query import TargetQuery
from model.views.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Doubles = NDArray[np.float64]
Transform = Literal["shift-x", "shift-y", "turn", "scale"]
MAX_STEPS = 64
LIMITS: dict[Transform, tuple[float, float]] = {
    "shift-x": (-14, 14),
    "shift-y": (-14, 14),
    "turn": (-180, 180),
    "scale": (0.25, 4),
}
"""The smallest and largest value of each transform."""
DEFAULTS: dict[Transform, tuple[float, float]] = {
    "shift-x": (-6, 6),
    "shift-y": (-6, 6),
    "turn": (-60, 60),
    "scale": (0.6, 1.4),
}
"""The default range of each transform."""
THUMBNAILS = 13
"""The drawing shows at most this many images, evenly spaced."""
_STRIP_PX, _CHART_PX, _PATH_PX = 100, 240, 560
"""The heights of the images, of a chart and of the path in the drawing."""
_COLOURED, _OTHERS = 3, "#b4b9c0"
"""This many pose dimensions are drawn in colour, the others in this grey."""
_UNITS: dict[Transform, str] = {
    "shift-x": "pixels to the right",
    "shift-y": "pixels down",
    "turn": "degrees counter-clockwise",
    "scale": "times the size",
}
_FURTHEST = max(max(limits) for limits in LIMITS.values())
Value = Annotated[float, Field(ge=-_FURTHEST, le=_FURTHEST, allow_inf_nan=False)]


@dataclass(frozen=True)
class Walk:
    """A transform and its values, step by step."""

    transform: Transform
    values: tuple[float, ...]

    def images(self, image: Floats) -> list[Floats]:
        """The image (C, H, W) at every step."""
        return [transform_image(image, self.transform, value) for value in self.values]


def plan_walk(transform: Transform, *, start: float | None, stop: float | None, steps: int) -> Walk:
    """Return evenly spaced values, both ends included.

    Raises:
        ValueError: an end is out of the transform's limits, or the walk has no extent.
    """
    first, last = DEFAULTS[transform]
    first, last = (first if start is None else start), (last if stop is None else stop)
    low, high = LIMITS[transform]
    if not (low <= first < last <= high):
        raise ValueError(
            f"{transform} goes from {low:g} to {high:g}, start < stop; not {first:g} to {last:g}"
        )
    return Walk(transform, tuple(np.linspace(first, last, steps).round(6).tolist()))


def transform_image(image: Floats, transform: Transform, value: float) -> Floats:
    """Move an image (..., H, W) in [0, 1] about its middle.

    The value is in pixels to the right (`shift-x`) or down (`shift-y`), in degrees
    counter-clockwise (`turn`), or the factor by which the image grows (`scale`).
    """
    matrix, offset = np.eye(2), np.zeros(2)
    match transform:
        case "shift-x":
            offset[0] = value
        case "shift-y":
            offset[1] = value
        case "turn":
            cosine, sine = math.cos(math.radians(value)), math.sin(math.radians(value))
            matrix = np.array([[cosine, sine], [-sine, cosine]])  # y points down
        case "scale":
            matrix = matrix * value
    return warp(image, matrix, offset)


def warp(image: Floats, matrix: Doubles, offset: Doubles) -> Floats:
    """Apply x' = A (x - m) + m + t to every point x of an image, m its middle.

    Each pixel of the result takes what lies at x = A^-1 (x' - m - t) + m, weighted bilinearly from
    its four neighbours. Outside of the image there is black: what leaves the frame is lost, and a
    stroke at the very edge fades within a pixel.

    Args:
        image: (..., H, W); all channels move alike.
        matrix: A, (2, 2), for (x, y), invertible.
        offset: t, (2,), in pixels.
    """
    height, width = image.shape[-2:]
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    grid = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1)  # (H, W, 2)
    source = (grid - middle - offset) @ np.linalg.inv(matrix).T + middle
    corner = np.floor(source).astype(int)
    share = source - corner
    result = np.zeros(image.shape)
    for step in np.ndindex(2, 2):
        x, y = np.moveaxis(corner + step, -1, 0)
        weight = np.where(step, share, 1 - share).prod(axis=-1)
        weight *= (x >= 0) & (x < width) & (y >= 0) & (y < height)
        result += weight * image[..., y.clip(0, height - 1), x.clip(0, width - 1)]
    return result.astype(np.float32)


def angles_deg(poses: Floats, still: Floats) -> Floats:
    """Return the angles between poses (S, D) and one pose (D,), in degrees, (S,).

    By Kahan's formula for unit vectors: the cosine of a small angle rounds to 1.
    """
    ones, other = _unit(poses), _unit(still)
    apart = np.linalg.norm(ones - other, axis=1)
    return np.asarray(np.degrees(2 * np.arctan2(apart, np.linalg.norm(ones + other, axis=1))))


def _unit(vectors: Floats) -> Doubles:
    exact = vectors.astype(np.float64)
    return np.asarray(exact / (np.linalg.norm(exact, axis=-1, keepdims=True) + 1e-12))


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

    def walk(self) -> Walk:
        """Return how the image moves.

        Raises:
            InvalidParameter: an end is out of the transform's limits.
        """
        try:
            return plan_walk(self.transform, start=self.start, stop=self.stop, steps=self.steps)
        except ValueError as error:
            raise InvalidParameter(str(error), parameter="start") from error

    def check(self, manifest: Manifest) -> None:
        """Refuse ends that are out of the transform's limits."""
        self.walk()
        super().check(manifest)

    def rows(self, manifest: Manifest) -> int:  # noqa: ARG002
        """Each step is encoded."""
        return self.steps


class EquivarianceAnswer(CapsuleAnswer):
    """The length and pose of a class while the image is transformed.

    Lists over steps follow `values`.
    """

    transform: Transform
    values: list[float]
    lengths: Vector = Field(description="Presence of the class at each step.")
    labels: list[int] = Field(description="The most present class at each step.")
    angles_deg: Vector | None = Field(
        description="Angle to the untransformed pose at each step; null without poses."
    )
    poses: Poses | None = Field(description="Pose of the class at each step; null without poses.")
    points: Matrix | None = Field(
        description="(steps, 2), centred: the path of the pose, in the plane in which it varies "
        "most; null without poses."
    )
    explained: Vector | None = Field(
        description="(2,), share of the pose's variance along x and along y of `points`; null "
        "without poses."
    )
    straightness: Number | None = Field(
        description="Distance between the ends of the path, divided by the length of the path, in "
        "all dimensions, from 0 to 1; null without poses."
    )
    images: Inner[list[Floats]]
    """The image (C, H, W) at each step."""
    rivals: Inner[Floats]
    """(steps,), presence of the most present other class."""
    presence: Inner[str]
    """The word for it."""


async def equivariance(net: Net, query: EquivarianceQuery, picture: Prepared) -> EquivarianceAnswer:
    """Transform an image step by step and encode each step.

    In an equivariant network, the length stays and the pose changes with the image. The drawing
    projects the path of the pose on the plane of the two directions in which the pose varies most.
    Each image and each transform has its own plane. A straight path means that the transform moves
    the pose in one direction. It does not mean that the prediction is correct, or that the presence
    stays.
    """
    walk = query.walk()
    capsule = (await encode_picture(net, picture)).capsule(query.target)
    label = capsule.label
    images = await net.aside(walk.images, picture.image)
    presence, all_poses = await encode_all(net, images)
    poses, has_poses = all_poses[:, label], net.manifest.class_dim > 0
    path = trace_path(poses) if has_poses else None
    return EquivarianceAnswer(
        **answer_fields(net.manifest, capsule),
        transform=walk.transform,
        values=list(walk.values),
        lengths=presence[:, label],
        labels=presence.argmax(axis=1).tolist(),
        angles_deg=angles_deg(poses, capsule.pose) if has_poses else None,
        poses=poses if has_poses else None,
        points=path.points if path else None,
        explained=path.explained if path else None,
        straightness=path.straightness if path else None,
        images=images,
        rivals=np.delete(presence, label, axis=1).max(axis=1, initial=0),
        presence=net.manifest.presence,
    )


def draw(answer: EquivarianceAnswer, query: EquivarianceQuery) -> bytes:  # noqa: ARG001
    """The images, presence and, where there are poses, their angles, numbers and path."""
    charts: list[tuple[str, Floats]] = [
        (answer.presence, np.column_stack((answer.lengths, answer.rivals)))
    ]
    poses, path = answer.poses, _path_of(answer)
    if poses is not None and answer.angles_deg is not None:
        angle = f"degrees between the pose of {answer.class_name} and that of the unmoved picture"
        numbers = f"the {poses.shape[1]} numbers of the pose, those that change most in colour"
        charts += [(angle, answer.angles_deg), (numbers, poses)]
    heights = (_STRIP_PX, _CHART_PX * len(charts), *([_PATH_PX] if path else []))

    def fill(figure: Figure) -> None:
        figure.set_layout_engine("constrained")
        parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        colours = step_colours(len(answer.values))
        shown = spaced(len(answer.images), THUMBNAILS)
        images = [answer.images[step] for step in shown]
        titles = [f"{answer.values[step]:.3g}" for step in shown]
        panels = show_strip(parts[0], images, titles, below=True)
        for axes, step in zip(panels, shown, strict=True):
            for spine in axes.spines.values():
                spine.set(color=colours[step], linewidth=3)
        rows = parts[1].subplots(len(charts), 1, sharex=True, squeeze=False)[:, 0]
        _draw_charts(rows, charts, answer)
        if path:
            axes = parts[2].subplots()
            draw_path(axes, path, answer.lengths, colours)
            title = f"path of the pose, straightness {path.straightness:.2f}"
            axes.set_title(title, loc="left", fontsize="medium")
            for step in shown:
                text, point = f"{answer.values[step]:.3g}", path.points[step]
                axes.annotate(text, point, (6, 6), textcoords="offset points", fontsize=8)

    return draw_figure(fill, width_px=900, height_px=sum(heights))


def _path_of(answer: EquivarianceAnswer) -> Path | None:
    if answer.points is None or answer.explained is None or answer.straightness is None:
        return None
    return Path(answer.points, answer.explained, answer.straightness)


def _draw_charts(
    rows: Sequence[Axes], charts: list[tuple[str, Floats]], answer: EquivarianceAnswer
) -> None:
    """Draw presence, angles and numbers over the values of the transform."""
    for axes, (title, values) in zip(rows, charts, strict=True):
        if values is answer.poses:
            _draw_poses(axes, answer.values, values)
        else:
            axes.plot(answer.values, values)
        axes.set_title(title, loc="left", fontsize="medium")
        axes.grid(alpha=0.4)
    rows[0].legend([answer.class_name, "most present other class"], fontsize="small")
    rows[0].set_ylim(0, 1)
    rows[-1].set_xlabel(_UNITS[answer.transform])


def _draw_poses(axes: Axes, values: list[float], poses: Floats) -> None:
    """Draw pose dimensions (S, D): those of the largest range in colour, with a legend."""
    ranges = np.ptp(poses, axis=0)
    most = np.argsort(-ranges, kind="stable")[:_COLOURED].tolist()
    axes.plot(values, np.delete(poses, most, axis=1), color=_OTHERS, linewidth=0.7)
    for dim in sorted(most):
        axes.plot(values, poses[:, dim], label=f"dimension {dim}")
    axes.legend(fontsize="small")


VIEW = View(
    name="equivariance",
    query=EquivarianceQuery,
    answer=EquivarianceAnswer,
    compute=equivariance,
    large=True,
    draw=draw,
    slow=True,
)
