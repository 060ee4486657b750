"""`POST /perturb`."""

from __future__ import annotations

from functools import partial

import numpy as np
from pydantic import Field

from service.errors import InvalidParameter
from service.http.route import JsonOrPng, Request
from service.pictures import encode_png
from service.views.reconstruct import ReconstructQuery
from service.views.schemas import CapsuleAnswer, DataUrl, Delta, Index, Meaning, Pose, answer_fields
from service.views.view import View


class PerturbQuery(ReconstructQuery):
    """The parameters of `/perturb`."""

    dim: Index = Field(description="The pose dimension to move, below D.", examples=[4])
    delta: Delta = Field(description="Added to it; the paper shows -0.25 to 0.25.", examples=[0.1])


class PerturbAnswer(CapsuleAnswer):
    """An image before and after one pose dimension was moved."""

    dim: int
    delta: float
    meaning: Meaning | None = Field(description="Null if the bundle does not name it.")
    pose: Pose
    perturbed_pose: Pose
    reconstruction: DataUrl
    perturbed: DataUrl


async def perturb(request: Request, query: PerturbQuery) -> JsonOrPng[PerturbAnswer]:
    """Move one pose dimension and decode (paper, section 5.1)."""
    manifest = request.pipeline.manifest(query.model, needs="decode")
    if query.dim >= manifest.class_dim:
        raise InvalidParameter(f"dim is 0 to {manifest.class_dim - 1}", parameter="dim")
    capsule = await query.read_capsule(request, manifest, extra_rows=2)
    poses = np.stack((capsule.pose, capsule.pose))
    poses[1, query.dim] += query.delta
    images = await request.pipeline.decode(manifest, poses, capsule.label)
    fields = answer_fields(
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
    return JsonOrPng(partial(PerturbAnswer, **fields), manifest, draw)


VIEW = View(path="/perturb", handler=perturb, needs="decode", max_cost=3)
