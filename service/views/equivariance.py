"""`POST /equivariance`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from model.bundle import Manifest
from model.canvas import enlarge
from model.interpret.equivariance import LIMITS, MAX_STEPS, Transform, Walk, angles_deg, plan_walk
from model.preprocess import Floats
from service.drawing import draw_figure
from service.errors import InvalidParameter, UnknownModel
from service.http.route import RESPONSE_COST_ROWS, Request, SlowJsonOrPng
from service.views.schemas import CapsuleAnswer, Pose, TargetQuery, Vector, answer_fields
from service.views.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_THUMBNAILS = 13
"""The drawing shows at most this many images, evenly spaced."""
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


class EquivarianceQuery(TargetQuery):
    """The parameters of `/equivariance`."""

    former: ClassVar = {"from": "start", "to": "stop"}

    transform: Transform = Field("turn", description="What is done to the fitted image.")
    start: Value | None = Field(
        None,
        description="Pixels to the right or down, degrees counter-clockwise, or a factor; "
        "by default -6, -60 or 0.6.",
    )
    stop: Value | None = Field(None, description="Above `start`; by default 6, 60 or 1.4.")
    steps: int = Field(13, ge=2, le=MAX_STEPS, description="Images, both ends included.")

    def walk(self) -> Walk:
        """Return how the image moves.

        Raises:
            InvalidParameter: an end is out of the transform's limits.
        """
        try:
            return plan_walk(self.transform, start=self.start, stop=self.stop, steps=self.steps)
        except ValueError as error:
            raise InvalidParameter(str(error), parameter="start") from error


class EquivarianceAnswer(CapsuleAnswer):
    """The length and pose of a class while the image is transformed.

    Lists over steps follow `values`.
    """

    transform: Transform
    values: list[float]
    lengths: Vector = Field(description="Presence of the class at each step.")
    labels: list[int] = Field(description="The most present class at each step.")
    angles_deg: Vector | None = Field(description="To the untransformed pose; null without poses.")
    poses: list[Pose] | None = Field(description="Of the class at each step; null without poses.")


async def equivariance(
    request: Request, query: EquivarianceQuery
) -> SlowJsonOrPng[EquivarianceAnswer]:
    """Transform an image step by step and encode each.

    In an equivariant network the length stays and the pose changes.
    """
    manifest = request.pipeline.manifest(query.model)
    walk = query.walk()
    capsule = await query.read_capsule(
        request, manifest, extra_rows=query.steps + RESPONSE_COST_ROWS
    )
    label = capsule.label
    images = await asyncio.to_thread(walk.images, capsule.prepared.image)
    presence, all_poses = await request.pipeline.encode_all(manifest, images)
    poses = all_poses[:, label]
    angles, has_poses = angles_deg(poses, capsule.pose), manifest.class_dim > 0
    fields = answer_fields(
        manifest,
        capsule,
        transform=walk.transform,
        values=walk.values,
        lengths=presence[:, label],
        labels=presence.argmax(axis=1).tolist(),
        angles_deg=angles if has_poses else None,
        poses=list(poses) if has_poses else None,
    )
    draw = partial(draw_equivariance, manifest, walk, images, label=label)
    draw = partial(draw, presence=presence, poses=poses, angles_deg=angles)
    return SlowJsonOrPng(partial(EquivarianceAnswer, **fields), manifest, draw, large=True)


def draw_equivariance(
    manifest: Manifest,
    walk: Walk,
    images: list[Floats],
    *,
    label: int,
    presence: Floats,
    poses: Floats,
    angles_deg: Floats,
) -> bytes:
    """Draw images, presence and, where there are poses, angles and numbers, and return a PNG.

    Args:
        manifest: of the network.
        walk: its S values are the axis.
        images: S images (C, H, W).
        label: the class that is followed.
        presence: (S, K).
        poses: (S, D), of the class.
        angles_deg: (S,), of its poses with that of the unmoved image.
    """
    name, steps = manifest.class_names[label], len(images)
    others = np.delete(presence, label, axis=1).max(axis=1)
    charts: list[tuple[str, Floats]] = [
        (manifest.presence, np.column_stack((presence[:, label], others)))
    ]
    if manifest.class_dim:
        angle = f"degrees between the pose of {name} and that of the unmoved picture"
        numbers = f"the {manifest.class_dim} numbers of the pose, those that change most in colour"
        charts += [(angle, angles_deg), (numbers, poses)]
    shown = np.unique(np.linspace(0, steps - 1, min(steps, _THUMBNAILS)).round().astype(int))
    heights = (100, 240 * len(charts))

    def fill(figure: Figure) -> None:
        figure.set_layout_engine("constrained")
        strip, curves = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
        places = strip.subplots(1, len(shown), squeeze=False)[0]
        for axes, step in zip(places, shown, strict=True):
            axes.imshow(enlarge(images[step], 1).convert("RGB"), interpolation="nearest")
            axes.set(xticks=[], yticks=[], xlabel=f"{walk.values[step]:.3g}")
        rows = curves.subplots(len(charts), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, values) in zip(rows, charts, strict=True):
            if values is poses:
                _draw_poses(axes, walk, poses)
            else:
                axes.plot(walk.values, values)
            axes.set_title(title, loc="left", fontsize="medium")
            axes.grid(alpha=0.4)
        rows[0].legend([name, "most present other class"], fontsize="small")
        rows[0].set_ylim(0, 1)
        rows[-1].set_xlabel(_UNITS[walk.transform])

    return draw_figure(fill, width_px=900, height_px=sum(heights))


def _draw_poses(axes: Axes, walk: Walk, poses: Floats) -> None:
    """Draw pose dimensions (S, D): those of the largest range in colour, with a legend."""
    ranges = np.ptp(poses, axis=0)
    most = np.argsort(-ranges, kind="stable")[:_COLOURED].tolist()
    axes.plot(walk.values, np.delete(poses, most, axis=1), color=_OTHERS, linewidth=0.7)
    for dim in sorted(most):
        axes.plot(walk.values, poses[:, dim], label=f"dimension {dim}")
    axes.legend(fontsize="small")


VIEW = View(
    path="/equivariance",
    handler=equivariance,
    max_cost=1 + MAX_STEPS + RESPONSE_COST_ROWS,
    problems=(UnknownModel,),
)
