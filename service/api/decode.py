"""`POST /decode`."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from model.bundle import Manifest
from model.interpret.sweep import MAX_PICTURES
from model.preprocess import Floats
from service.api.answers import BundleAnswer, DataUrl, bundle, data_url
from service.api.queries import ModelQuery, Scale
from service.errors import InvalidParameter, MalformedRequest
from service.http.negotiation import JSON, PNG
from service.http.openapi import json_body
from service.http.problems import invalid
from service.http.route import Call, View
from service.http.uploads import content_type
from service.inference.inspector import check_label
from service.pictures.decode import encode_png

MAX_POSES_BYTES = 500_000
"""Of a body of `/decode`; the most poses, of 16 numbers, take a fifth of it."""
Component = Annotated[float, Field(strict=True, ge=-10, le=10, allow_inf_nan=False)]
Pose = Annotated[
    list[Component], Field(fail_fast=True, description="D numbers, each from -10 to 10.")
]


class DecodeQuery(ModelQuery):
    """Of `/decode`."""

    scale: Scale = 1


class DecodeBody(BaseModel):
    """Poses of one class: `pose` or `poses`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pose: Pose | None = None
    poses: list[Pose] | None = Field(None, min_length=1, max_length=MAX_PICTURES, fail_fast=True)
    label: int = Field(strict=True, ge=0, description="The class whose decoder draws.")

    @model_validator(mode="before")
    @classmethod
    def _few(cls, members: object) -> object:
        """Of thousands of unknown members a few: naming them all would take long."""
        return dict(islice(members.items(), 8)) if isinstance(members, dict) else members

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.pose is None) == (self.poses is None):
            raise ValueError("give either pose or poses")
        return self

    def as_array(self, manifest: Manifest) -> Floats:
        """All poses (M, D).

        Raises:
            InvalidParameter: a pose has not D numbers, or the label is out of range.
        """
        check_label(manifest, self.label, parameter="label")
        poses = self.poses or [self.pose or []]
        for pose in poses:
            if len(pose) != manifest.class_dim:
                detail = f"a pose has {manifest.class_dim} numbers, not {len(pose)}"
                raise InvalidParameter(detail, parameter="poses" if self.poses else "pose")
        return np.array(poses, np.float32)


class DecodeAnswer(BundleAnswer):
    """The pictures of some poses."""

    label: int
    class_name: str
    images: list[DataUrl] = Field(description="One for each pose, in order.")


BODY = json_body(DecodeBody.model_json_schema())
BODY["requestBody"]["content"]["application/json"]["example"] = {
    "pose": [0.25, -0.25] * 8,
    "label": 7,
}


async def decode(call: Call, query: DecodeQuery) -> View[DecodeAnswer]:
    """Draw any pose of a class, or up to 256 of them as one batch."""
    body = await _read(call)
    manifest = call.inspector.manifest(query.model, needs="decode")
    poses = body.as_array(manifest)
    if call.media_type == PNG and len(poses) > 1:
        raise InvalidParameter("a PNG shows one pose", parameter="poses")
    call.inspector.admit(len(poses))
    images = await call.inspector.decode(manifest, poses, body.label)

    def answer() -> DecodeAnswer:
        return DecodeAnswer(
            **bundle(manifest),
            label=body.label,
            class_name=manifest.class_names[body.label],
            images=[data_url(image) for image in images],
        )

    return View(manifest, answer, partial(encode_png, images[0], scale=query.scale), large=True)


async def _read(call: Call) -> DecodeBody:
    content = await call.body()
    if content_type(call) != JSON:
        raise MalformedRequest("the body: send application/json")
    try:
        return DecodeBody.model_validate_json(content)
    except ValidationError as error:
        raise invalid(error) from error
