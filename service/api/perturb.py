"""`POST /perturb` and `POST /perturb/sweep`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Field

from model.bundle import Manifest
from model.canvas import png
from model.interpret.sweep import Sweep, plan_sweep
from model.interpret.sweep_grid import draw_sweep
from service.api.answers import CapsuleAnswer, DataUrl, Meaning, Pose, about, data_url, rounded
from service.api.queries import Scale, TargetQuery
from service.errors import InvalidParameter
from service.http.route import Call, View
from service.pictures.decode import encode_png

Delta = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]


class PerturbQuery(TargetQuery):
    """Of `/perturb`."""

    scale: Scale = 1
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

    def answer() -> PerturbAnswer:
        meaning = manifest.meaning(capsule.label, query.dim)
        return PerturbAnswer(
            **about(manifest, capsule, meaning=meaning),
            dim=query.dim,
            delta=query.delta,
            pose=rounded(poses[0]),
            perturbed_pose=rounded(poses[1]),
            reconstruction=data_url(images[0]),
            perturbed=data_url(images[1]),
        )

    return View(manifest, answer, partial(encode_png, images[1], scale=query.scale))


class SweepQuery(TargetQuery):
    """Of `/perturb/sweep`."""

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

    def answer() -> SweepAnswer:
        meanings = [manifest.meaning(label, dim) for dim in plan.dims]
        return SweepAnswer(
            **about(manifest, capsule, meanings=meanings),
            pose=rounded(capsule.pose),
            dims=list(plan.dims),
            deltas=list(plan.deltas),
            images=[[data_url(image) for image in row] for row in images],
        )

    grid = partial(draw_sweep, images, plan, manifest=manifest, label=label, scale=query.scale)
    return View(manifest, answer, lambda: png(grid()), large=True)
