"""Decode poses into images."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from model.bundle import Manifest
from model.canvas import draw_image
from model.errors import InvalidParameter
from model.measures import measure_drawings
from model.views.answers import DataUrl, ModelAnswer, Vector, answer_fields
from model.views.net import Net, check_label
from model.views.view import Index, Scale, View, ViewQuery

MAX_POSES = 256
"""A query has at most this many poses, which are decoded as one batch."""
MAX_COMPONENT = 10
"""The largest magnitude of a pose's number. No decoder was trained on poses so far from zero."""
_MAX_UNKNOWN = 8
Component = Annotated[
    float,
    Field(strict=True, ge=-MAX_COMPONENT, le=MAX_COMPONENT, allow_inf_nan=False),
]
GivenPose = Annotated[
    list[Component], Field(fail_fast=True, description="D numbers, each from -10 to 10.")
]


def _has(name: str) -> JsonDict:
    return {"required": [name], "properties": {name: {"type": "array"}}}


class DecodeBody(BaseModel):
    """Poses of one class: `pose` or `poses`."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"oneOf": [_has("pose"), _has("poses")]}
    )

    pose: GivenPose | None = None
    poses: list[GivenPose] | None = Field(None, min_length=1, max_length=MAX_POSES, fail_fast=True)
    label: Index = Field(strict=True, description="Class of the poses.")

    @model_validator(mode="before")
    @classmethod
    def _few(cls, members: object) -> object:
        """Keep a few of thousands of unknown members, because naming them all would take long."""
        few = islice(members.items(), _MAX_UNKNOWN) if isinstance(members, dict) else None
        return members if few is None else dict(few)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.pose is None) == (self.poses is None):
            raise ValueError("give either pose or poses")
        return self


class DecodeQuery(DecodeBody, ViewQuery):
    """The parameters of `decode`."""

    scale: Scale = 1

    max_rows = MAX_POSES

    @property
    def all_poses(self) -> list[list[float]]:
        """The poses, (M, D)."""
        return self.poses or [self.pose or []]

    def check(self, manifest: Manifest) -> None:
        """Refuse a label, or poses of a size, that the network does not have."""
        check_label(manifest, self.label, parameter="label")
        for pose in self.all_poses:
            if len(pose) != manifest.class_dim:
                raise InvalidParameter(
                    f"a pose has {manifest.class_dim} numbers, not {len(pose)}",
                    parameter="poses" if self.poses else "pose",
                )

    def rows(self, manifest: Manifest) -> int:  # noqa: ARG002
        """Each pose is decoded."""
        return len(self.all_poses)


def name_poses(poses: ArrayLike) -> dict[str, object]:
    """The parameter for one pose (D,), or for several (M, D)."""
    values = np.asarray(poses, np.float64)
    return {"pose" if values.ndim == 1 else "poses": values.tolist()}


class DecodeAnswer(ModelAnswer):
    """The images of some poses."""

    label: int
    class_name: str
    images: list[DataUrl] = Field(description="An image for each pose, in order.")
    measured: dict[str, Vector] = Field(
        description="What is measured on each image, less the mean by which drawings exceed their "
        "images, by the name of the direction."
    )


async def decode(net: Net, query: DecodeQuery) -> DecodeAnswer:
    """Decode one pose of a class, or up to 256, into images."""
    images = await net.decode(np.array(query.all_poses, np.float32), query.label)
    offered = net.manifest.offered_directions(query.label)
    measured = {
        name: values.astype(np.float32)
        for name, values in measure_drawings(net.manifest, offered, images).items()
    }
    return DecodeAnswer(
        **answer_fields(net.manifest),
        label=query.label,
        class_name=net.manifest.class_names[query.label],
        images=list(images),
        measured=measured,
    )


def draw_decoded(answer: DecodeAnswer, scale: int) -> bytes:
    """The images, side by side."""
    return draw_image(np.concatenate(answer.images, axis=2), scale)


VIEW = View(
    decode,
    pictures=(0, 0),
    body=DecodeBody,
    draw=draw_decoded,
    needs="decode",
)
