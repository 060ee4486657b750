"""`POST /decode`."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.config import JsonDict

from model.interpret.sweep import MAX_IMAGES
from service.errors import InvalidParameter, TooLarge, UnsupportedFormat
from service.http.negotiation import JSON, PNG
from service.http.openapi import json_body
from service.http.problems import invalid
from service.http.route import RESPONSE_COST_ROWS, JsonOrPng, Request
from service.http.uploads import content_type
from service.pictures import encode_png
from service.pipeline import check_label
from service.views.schemas import DataUrl, Index, ModelAnswer, ModelQuery, Scale, answer_fields
from service.views.view import View

MAX_POSES_BYTES = 500_000
"""A body of `/decode` may have this many bytes. The most poses, of 16 numbers, take a fifth."""
LARGEST_COMPONENT = 10
"""The largest magnitude of a pose's number. No decoder was trained so far from zero."""
Component = Annotated[
    float,
    Field(strict=True, ge=-LARGEST_COMPONENT, le=LARGEST_COMPONENT, allow_inf_nan=False),
]
GivenPose = Annotated[
    list[Component], Field(fail_fast=True, description="D numbers, each from -10 to 10.")
]


class DecodeQuery(ModelQuery):
    """The parameters of `/decode`."""

    scale: Scale = 1


def _has(name: str) -> JsonDict:
    return {"required": [name], "properties": {name: {"type": "array"}}}


class DecodeBody(BaseModel):
    """Poses of one class: `pose` or `poses`."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"oneOf": [_has("pose"), _has("poses")]}
    )

    pose: GivenPose | None = None
    poses: list[GivenPose] | None = Field(None, min_length=1, max_length=MAX_IMAGES, fail_fast=True)
    label: Index = Field(strict=True, description="Class of the poses.")

    @model_validator(mode="before")
    @classmethod
    def _few(cls, members: object) -> object:
        """Keep a few of thousands of unknown members, because naming them all would take long."""
        return dict(islice(members.items(), 8)) if isinstance(members, dict) else members

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.pose is None) == (self.poses is None):
            raise ValueError("give either pose or poses")
        return self


class DecodeAnswer(ModelAnswer):
    """The images of some poses."""

    label: int
    class_name: str
    images: list[DataUrl] = Field(description="One for each pose, in order.")


async def decode(request: Request, query: DecodeQuery) -> JsonOrPng[DecodeAnswer]:
    """Decode one or up to 256 poses of a class into images."""
    body = await _read(request)
    manifest = request.pipeline.manifest(query.model, needs="decode")
    check_label(manifest, body.label, parameter="label")
    parameter, poses = ("poses", body.poses) if body.poses else ("pose", [body.pose or []])
    for pose in poses:
        if len(pose) != manifest.class_dim:
            detail = f"a pose has {manifest.class_dim} numbers, not {len(pose)}"
            raise InvalidParameter(detail, parameter=parameter)
    if request.media_type == PNG and len(poses) > 1:
        raise InvalidParameter("a PNG shows one pose", parameter="poses")
    request.pipeline.admit(len(poses) + RESPONSE_COST_ROWS)
    images = await request.pipeline.decode(manifest, np.array(poses, np.float32), body.label)
    name = manifest.class_names[body.label]
    fields = answer_fields(manifest, label=body.label, class_name=name, images=list(images))
    draw = partial(encode_png, images[0], scale=query.scale)
    return JsonOrPng(partial(DecodeAnswer, **fields), manifest, draw, large=True)


async def _read(request: Request) -> DecodeBody:
    content = await request.body()
    if len(content) > MAX_POSES_BYTES:
        raise TooLarge(f"poses may have {MAX_POSES_BYTES:,} bytes")
    if content_type(request) != JSON:
        raise UnsupportedFormat("send application/json")
    try:
        return DecodeBody.model_validate_json(content)
    except ValidationError as error:
        raise invalid(error) from error


VIEW = View(
    path="/decode",
    handler=decode,
    needs="decode",
    max_cost=MAX_IMAGES + RESPONSE_COST_ROWS,
    body=json_body(DecodeBody.model_json_schema()),
)
