"""`POST /equivariance`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

from pydantic import Field

from model.interpret.equivariance import LIMITS, MAX_STEPS, Transform, Walk, angles_deg, plan_walk
from service.api.schemas import CapsuleAnswer, Pose, TargetQuery, Vector, about
from service.errors import InvalidParameter
from service.http.route import ANSWER, Drawing, Request
from service.views import draw_equivariance

_FURTHEST = max(max(limits) for limits in LIMITS.values())
Value = Annotated[float, Field(ge=-_FURTHEST, le=_FURTHEST, allow_inf_nan=False)]


class EquivarianceQuery(TargetQuery):
    """Of `/equivariance`."""

    transform: Transform = Field("turn", description="What is done to the fitted image.")
    start: Value | None = Field(
        None,
        alias="from",
        description="Pixels to the right or down, degrees counter-clockwise, or a factor; "
        "by default -6, -60 or 0.6.",
    )
    stop: Value | None = Field(
        None, alias="to", description="Above `from`; by default 6, 60 or 1.4."
    )
    steps: int = Field(13, ge=2, le=MAX_STEPS, description="Images, both ends included.")

    def walk(self) -> Walk:
        """How the image moves.

        Raises:
            InvalidParameter: an end is out of the transform's limits.
        """
        try:
            return plan_walk(self.transform, start=self.start, stop=self.stop, steps=self.steps)
        except ValueError as error:
            raise InvalidParameter(str(error), parameter="from") from error


class EquivarianceAnswer(CapsuleAnswer):
    """Length and pose of a class while the image is moved. Lists over steps follow `values`."""

    transform: Transform
    values: list[float]
    lengths: Vector = Field(description="Presence of the class at each step.")
    labels: list[int] = Field(description="The most present class at each step.")
    angles_deg: Vector | None = Field(description="To the untransformed pose; null without poses.")
    poses: list[Pose] | None = Field(description="Of the class at each step; null without poses.")


async def equivariance(request: Request, query: EquivarianceQuery) -> Drawing[EquivarianceAnswer]:
    """Transform an image step by step and encode each.

    In an equivariant network the length stays and the pose changes.
    """
    manifest = request.pipeline.manifest(query.model)
    walk = query.walk()
    capsule = await query.read_capsule(request, manifest, further=query.steps + ANSWER)
    label = capsule.label
    images = await asyncio.to_thread(walk.images, capsule.prepared.image)
    presence, all_poses = await request.pipeline.encode_all(manifest, images)
    poses = all_poses[:, label]
    angles, has_poses = angles_deg(poses, capsule.pose), manifest.class_dim > 0
    fields = about(
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
    return Drawing(partial(EquivarianceAnswer, **fields), manifest, draw, large=True)
