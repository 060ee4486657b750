"""`POST /sweep`."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from pydantic import Field

from model.bundle import Manifest
from model.canvas import png
from model.interpret.sweep import MAX_IMAGES, Sweep, plan_sweep
from model.interpret.sweep_grid import draw_sweep
from model.preprocess import Floats
from service.errors import InvalidParameter
from service.http.route import RESPONSE_COST_ROWS, Request, SlowJsonOrPng
from service.views.schemas import (
    CapsuleAnswer,
    DataUrl,
    Delta,
    Index,
    Meaning,
    Pose,
    TargetQuery,
    answer_fields,
)
from service.views.view import View


class SweepQuery(TargetQuery):
    """The parameters of `/sweep`."""

    lists: ClassVar = frozenset({"dims"})
    former: ClassVar = {"from": "start", "to": "stop"}

    dims: list[Index] | None = Field(
        None,
        min_length=1,
        max_length=MAX_IMAGES,
        description="Repeatable, each below D and once; default: all.",
        json_schema_extra={"uniqueItems": True},
    )
    start: Delta = Field(-0.25, description="First delta.")
    stop: Delta = Field(0.25, description="Last delta.")
    step: float = Field(0.05, ge=1e-6, le=2, allow_inf_nan=False, description="Between deltas.")
    scale: int = Field(2, ge=1, le=8, description="PNG: each pixel becomes scale x scale.")

    def plan(self, manifest: Manifest) -> Sweep:
        """Return the poses that are drawn.

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
    """The decoded images: one row for each dimension, one column for each delta."""

    pose: Pose
    dims: list[int]
    deltas: list[float]
    meanings: list[Meaning | None] = Field(description="Measured effect of each of `dims`.")
    images: list[list[DataUrl]] = Field(description="Rows as in `dims`, columns as in `deltas`.")


async def sweep(request: Request, query: SweepQuery) -> SlowJsonOrPng[SweepAnswer]:
    """Move each pose dimension step by step (paper, figure 4)."""
    manifest = request.pipeline.manifest(query.model, needs="decode")
    plan = query.plan(manifest)
    extra_rows = len(plan.dims) * len(plan.deltas) + RESPONSE_COST_ROWS
    capsule = await query.read_capsule(request, manifest, extra_rows=extra_rows)
    label, poses = capsule.label, plan.poses(capsule.pose)
    images = plan.on_grid(await request.pipeline.decode(manifest, poses, label))
    meanings = [manifest.meaning(label, dim) for dim in plan.dims]
    steps = {"dims": plan.dims, "deltas": plan.deltas, "meanings": meanings}
    fields = answer_fields(
        manifest, capsule, pose=capsule.pose, images=list(map(list, images)), **steps
    )
    draw = partial(draw_sweep_png, images, plan, manifest=manifest, label=label, scale=query.scale)
    return SlowJsonOrPng(partial(SweepAnswer, **fields), manifest, draw, large=True)


def draw_sweep_png(
    images: Floats, sweep: Sweep, *, manifest: Manifest, label: int, scale: int
) -> bytes:
    """Draw the paper's figure 4 as a PNG: see `draw_sweep`."""
    return png(draw_sweep(images, sweep, manifest=manifest, label=label, scale=scale))


VIEW = View(
    path="/sweep",
    former_path="/perturb/sweep",
    handler=sweep,
    needs="decode",
    max_cost=1 + MAX_IMAGES + RESPONSE_COST_ROWS,
)
