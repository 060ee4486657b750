"""Poses are moved and drawn: `POST /reconstruct`, `/perturb`, `/perturb/sweep` and `/decode`."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from model.bundle import Manifest
from model.canvas import png
from model.interpret.sweep import MAX_PICTURES, Sweep, plan_sweep
from model.interpret.sweep_grid import draw_sweep
from service.api.schemas import (
    BundleAnswer,
    CapsuleAnswer,
    DataUrl,
    Meaning,
    ModelQuery,
    Number,
    Pose,
    Scale,
    TargetQuery,
    about,
)
from service.errors import InvalidParameter, MalformedRequest, TooLarge
from service.http.negotiation import JSON, PNG
from service.http.openapi import json_body
from service.http.problems import invalid
from service.http.route import Call, View
from service.http.uploads import content_type
from service.inference.inspector import check_label
from service.pictures import encode_png

MAX_POSES_BYTES = 500_000
"""Of a body of `/decode`; the most poses, of 16 numbers, take a fifth of it."""
Delta = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Component = Annotated[float, Field(strict=True, ge=-10, le=10, allow_inf_nan=False)]
GivenPose = Annotated[
    list[Component], Field(fail_fast=True, description="D numbers, each from -10 to 10.")
]


class ReconstructQuery(TargetQuery):
    """Of `/reconstruct`."""

    scale: Scale = 1


class ReconstructAnswer(CapsuleAnswer):
    """What the network imagined."""

    input: DataUrl = Field(description="The picture as the network saw it.")
    reconstruction: DataUrl
    error: Number = Field(description="Mean squared error, all channels, pixels in [0, 1].")


async def reconstruct(call: Call, query: ReconstructQuery) -> View[ReconstructAnswer]:
    """Draw what the network imagines: the decoded pose of one class capsule."""
    manifest = call.inspector.manifest(query.model, needs="decode")
    capsule = await query.read_capsule(call, manifest, further=1)
    (image,) = await call.inspector.decode(manifest, capsule.pose[None], capsule.label)
    seen = capsule.prepared.image
    error = np.square(image - seen).mean()
    found = about(manifest, capsule, input=seen, reconstruction=image, error=error)
    draw = partial(encode_png, image, scale=query.scale)
    return View(manifest, partial(ReconstructAnswer, **found), draw)


class PerturbQuery(ReconstructQuery):
    """Of `/perturb`."""

    dim: int = Field(ge=0, description="The pose dimension to move, below D.", examples=[4])
    delta: Delta = Field(description="How far; the paper shows -0.25 to 0.25.", examples=[0.1])


class PerturbAnswer(CapsuleAnswer):
    """A picture before and after one pose dimension was moved."""

    dim: int
    delta: float
    meaning: Meaning | None = Field(description="Null where the bundle does not tell.")
    pose: Pose
    perturbed_pose: Pose
    reconstruction: DataUrl
    perturbed: DataUrl


async def perturb(call: Call, query: PerturbQuery) -> View[PerturbAnswer]:
    """Move one dimension of the pose and draw the picture again (paper, section 5.1)."""
    manifest = call.inspector.manifest(query.model, needs="decode")
    if query.dim >= manifest.class_dim:
        raise InvalidParameter(f"dim is 0 to {manifest.class_dim - 1}", parameter="dim")
    capsule = await query.read_capsule(call, manifest, further=2)
    poses = np.stack((capsule.pose, capsule.pose))
    poses[1, query.dim] += query.delta
    images = await call.inspector.decode(manifest, poses, capsule.label)
    found = about(
        manifest,
        capsule,
        dim=query.dim,
        delta=query.delta,
        meaning=manifest.meaning(capsule.label, query.dim),
        pose=poses[0],
        perturbed_pose=poses[1],
        reconstruction=images[0],
        perturbed=images[1],
    )
    draw = partial(encode_png, images[1], scale=query.scale)
    return View(manifest, partial(PerturbAnswer, **found), draw)


class SweepQuery(TargetQuery):
    """Of `/perturb/sweep`."""

    lists: ClassVar = frozenset({"dims"})

    dims: list[int] | None = Field(None, min_length=1, description="Repeatable; default: all.")
    start: Delta = Field(-0.25, alias="from", description="First delta.")
    stop: Delta = Field(0.25, alias="to", description="Last delta.")
    step: float = Field(
        0.05, ge=1e-6, le=2, allow_inf_nan=False, description="From delta to delta."
    )
    scale: int = Field(2, ge=1, le=8, description="PNG: each pixel becomes scale x scale.")

    def plan(self, manifest: Manifest) -> Sweep:
        """Which poses are drawn.

        Raises:
            InvalidParameter: a dimension is out of range or repeated, or there are too many poses.
        """
        known = range(manifest.class_dim)
        dims = list(known) if self.dims is None else self.dims
        if not set(dims) <= set(known) or len(set(dims)) < len(dims):
            raise InvalidParameter(f"dims are 0 to {known[-1]}, each once", parameter="dims")
        try:
            return plan_sweep(dims, start=self.start, stop=self.stop, step=self.step)
        except ValueError as error:
            raise InvalidParameter(str(error), parameter="step") from error


class SweepAnswer(CapsuleAnswer):
    """One row of pictures for each dimension, one column for each delta."""

    pose: Pose
    dims: list[int]
    deltas: list[float]
    meanings: list[Meaning | None] = Field(description="What each of `dims` was found to do.")
    images: list[list[DataUrl]] = Field(description="Rows as in `dims`, columns as in `deltas`.")


async def sweep(call: Call, query: SweepQuery) -> View[SweepAnswer]:
    """Move each dimension of the pose step by step and draw every picture (paper, figure 4)."""
    manifest = call.inspector.manifest(query.model, needs="decode")
    plan = query.plan(manifest)
    further = len(plan.dims) * len(plan.deltas)
    capsule = await query.read_capsule(call, manifest, further=further)
    label, poses = capsule.label, plan.poses(capsule.pose)
    images = plan.on_grid(await call.inspector.decode(manifest, poses, label))
    meanings = [manifest.meaning(label, dim) for dim in plan.dims]
    steps = {"dims": plan.dims, "deltas": plan.deltas, "meanings": meanings}
    found = about(manifest, capsule, pose=capsule.pose, images=list(map(list, images)), **steps)

    def draw() -> bytes:
        return png(draw_sweep(images, plan, manifest=manifest, label=label, scale=query.scale))

    return View(manifest, partial(SweepAnswer, **found), draw, large=True)


class DecodeQuery(ModelQuery):
    """Of `/decode`."""

    scale: Scale = 1


class DecodeBody(BaseModel):
    """Poses of one class: `pose` or `poses`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pose: GivenPose | None = None
    poses: list[GivenPose] | None = Field(
        None, min_length=1, max_length=MAX_PICTURES, fail_fast=True
    )
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


class DecodeAnswer(BundleAnswer):
    """The pictures of some poses."""

    label: int
    class_name: str
    images: list[DataUrl] = Field(description="One for each pose, in order.")


POSES_BODY = json_body(DecodeBody.model_json_schema(), {"pose": [0.25, -0.25] * 8, "label": 7})


async def decode(call: Call, query: DecodeQuery) -> View[DecodeAnswer]:
    """Draw any pose of a class, or up to 256 of them as one batch."""
    body = await _read(call)
    manifest = call.inspector.manifest(query.model, needs="decode")
    check_label(manifest, body.label, parameter="label")
    parameter, poses = ("poses", body.poses) if body.poses else ("pose", [body.pose or []])
    for pose in poses:
        if len(pose) != manifest.class_dim:
            detail = f"a pose has {manifest.class_dim} numbers, not {len(pose)}"
            raise InvalidParameter(detail, parameter=parameter)
    if call.media_type == PNG and len(poses) > 1:
        raise InvalidParameter("a PNG shows one pose", parameter="poses")
    call.inspector.admit(len(poses))
    images = await call.inspector.decode(manifest, np.array(poses, np.float32), body.label)
    name = manifest.class_names[body.label]
    found = about(manifest, label=body.label, class_name=name, images=list(images))
    draw = partial(encode_png, images[0], scale=query.scale)
    return View(manifest, partial(DecodeAnswer, **found), draw, large=True)


async def _read(call: Call) -> DecodeBody:
    content = await call.body()
    if len(content) > MAX_POSES_BYTES:
        raise TooLarge(f"poses may have {MAX_POSES_BYTES:,} bytes")
    if content_type(call) != JSON:
        raise MalformedRequest("the body: send application/json")
    try:
        return DecodeBody.model_validate_json(content)
    except ValidationError as error:
        raise invalid(error) from error
