"""Move a pose along one direction, or in one dimension."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from model.bundle import Manifest
from model.bundle.directions import Direction
from model.canvas import draw_image
from model.errors import InvalidParameter
from model.measures import measure_drawings
from model.preprocess import Prepared
from model.views.answers import CapsuleAnswer, DataUrl, Number, Part, Pose, answer_fields, is_none
from model.views.net import Net, encode_picture
from model.views.view import Index, Scale, TargetQuery, View

MAX_DELTA = 1
"""The largest change of a dimension."""
MAX_STD = 6
"""The largest change along a direction, in standard deviations of the class."""


class PerturbQuery(TargetQuery):
    """The parameters of `perturb`."""

    scale: Scale = 1
    direction: str | None = Field(
        None,
        max_length=64,
        description="The direction to move along, such as `slant`: see `directions` of "
        "`GET /models`. Give either this or `dim`.",
    )
    dim: Index | None = Field(
        None, description="The pose dimension to move, counted from 0.", examples=[4]
    )
    delta: float = Field(
        ge=-1000,
        le=1000,
        allow_inf_nan=False,
        description="The change: along a direction in its unit, such as degrees, positive to the "
        "right; of a dimension -1 to 1, in the paper -0.25 to 0.25.",
        examples=[0.1],
    )

    max_rows = 2

    def check(self, manifest: Manifest) -> None:
        """Refuse a dimension that the poses do not have, and too large a change of it."""
        if (self.dim is None) == (self.direction is None):
            raise InvalidParameter("give either dim or direction", parameter="dim")
        if self.dim is not None and self.dim >= manifest.class_dim:
            raise InvalidParameter(f"dim is 0 to {manifest.class_dim - 1}", parameter="dim")
        if self.dim is not None and abs(self.delta) > MAX_DELTA:
            raise InvalidParameter("delta of a dimension is -1 to 1", parameter="delta")
        super().check(manifest)

    def find_direction(self, manifest: Manifest, label: int) -> Direction | None:
        """The direction of a class; None where a dimension is moved.

        Raises:
            InvalidParameter: the class has none of this name, or the change is too large.
        """
        if self.direction is None:
            return None
        offered = {known.name: known for known in manifest.offered_directions(label)}
        direction = offered.get(self.direction)
        if direction is None:
            names = ", ".join(offered) or "none; `training analyse` finds them"
            detail = f"directions of {manifest.class_names[label]} of {manifest.name!r}: {names}"
            raise InvalidParameter(detail, parameter="direction")
        if abs(self.delta) > MAX_STD * direction.std:
            most = f"{MAX_STD * direction.std:.3g} {direction.unit}".rstrip()
            detail = f"delta along {direction.name} is at most {most}"
            raise InvalidParameter(detail, parameter="delta")
        return direction


class MovedValue(Part):
    """What a direction is named after, before and after the move."""

    unit: str
    read: Number = Field(description="Read from the pose of the image.")
    asked: Number = Field(description="What was read, plus `delta`.")
    measured: Number | None = Field(
        description="Measured on the drawing of the moved pose, less the mean by which drawings "
        "exceed their images; null for factors and principal directions, which no drawing shows."
    )


class PerturbAnswer(CapsuleAnswer):
    """An image before and after its pose was moved."""

    dim: int | None = Field(None, exclude_if=is_none)
    direction: str | None = Field(None, exclude_if=is_none)
    delta: float
    value: MovedValue | None = Field(None, description="With `direction`.", exclude_if=is_none)
    pose: Pose
    perturbed_pose: Pose
    reconstruction: DataUrl
    perturbed: DataUrl


async def perturb(net: Net, query: PerturbQuery, picture: Prepared) -> PerturbAnswer:
    """Move a pose along a direction or a dimension, and decode it.

    A direction, such as `slant`, changes what its name says much more than the rest. `delta`
    is in its unit.
    """
    capsule = (await encode_picture(net, picture)).capsule(query.target)
    poses = np.stack((capsule.pose, capsule.pose))
    direction = query.find_direction(net.manifest, capsule.label)
    if direction:
        poses[1] += query.delta * np.asarray(direction.vector, np.float32)
    else:
        poses[1, query.dim] += query.delta
    images = await net.decode(poses, capsule.label)
    value = None
    if direction:
        read = direction.read(capsule.pose)
        measured = measure_drawings(net.manifest, [direction], images[1:]).get(direction.name)
        value = MovedValue(
            unit=direction.unit,
            read=read,
            asked=read + query.delta,
            measured=measured[0] if measured is not None else None,
        )
    return PerturbAnswer(
        **answer_fields(net.manifest, capsule),
        dim=query.dim,
        direction=query.direction,
        delta=query.delta,
        value=value,
        pose=poses[0],
        perturbed_pose=poses[1],
        reconstruction=images[0],
        perturbed=images[1],
    )


def draw_perturbed(answer: PerturbAnswer, scale: int) -> bytes:
    """The image after the pose was moved."""
    return draw_image(answer.perturbed, scale)


VIEW = View(
    perturb,
    draw=draw_perturbed,
    needs="decode",
)
