"""The routes that look inside the network: any pose, sweeps of a pose, routing, moved pictures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from model.bundle import Manifest
from model.canvas import png
from model.interpret.sweep import Sweep, plan_sweep
from model.interpret.sweep_grid import draw_sweep
from service.documentation import PICTURE_BODY, PICTURE_OR_PNG, PROBLEMS
from service.gate import GatedRoute, inspector_of
from service.images import encode_png
from service.inside.answers import DecodeAnswer, EquivarianceAnswer, RoutingAnswer, SweepAnswer
from service.inside.curve_panels import draw_equivariance
from service.inside.equivariance import Walk, plan_walk
from service.inside.queries import (
    DecodeBody,
    DecodeQuery,
    EquivarianceQuery,
    RoutingQuery,
    SweepQuery,
)
from service.inside.routing_panels import draw_routing
from service.inside.views import decode_sweep, view_equivariance, view_routing
from service.inspector import check_label
from service.negotiation import JSON, PNG, drawn, media_type_for
from service.problems import InvalidParameter
from service.uploads import read_picture

router = APIRouter(responses=PROBLEMS, route_class=GatedRoute)
POSE_EXAMPLE = {
    "requestBody": {
        "content": {"application/json": {"example": {"pose": [0.25, -0.25] * 8, "label": 7}}}
    }
}


@router.post(
    "/decode",
    openapi_extra=POSE_EXAMPLE,
    response_model=DecodeAnswer,
    responses=PICTURE_OR_PNG,
)
async def decode(
    request: Request,
    body: DecodeBody,
    query: Annotated[DecodeQuery, Query()],
) -> Response:
    """Draw any pose of a class, or up to 256 of them as one batch."""
    inspector = inspector_of(request)
    media_type = media_type_for(request, [JSON, PNG])
    manifest = inspector.manifest(query.model, needs="decode")
    poses = _poses(body, manifest)
    if media_type == PNG and len(poses) > 1:
        raise InvalidParameter("a PNG shows one pose", parameter="poses")
    images = await inspector.decode(manifest, poses, body.label)
    if media_type == PNG:
        return await drawn(lambda: encode_png(images[0], scale=query.scale))
    return await _form(lambda: DecodeAnswer.of(manifest, body.label, images))


@router.post(
    "/perturb/sweep",
    openapi_extra=PICTURE_BODY,
    response_model=SweepAnswer,
    responses=PICTURE_OR_PNG,
)
async def sweep(request: Request, query: Annotated[SweepQuery, Query()]) -> Response:
    """Move each dimension of the pose step by step and draw every picture (paper, figure 4)."""
    inspector = inspector_of(request)
    media_type = media_type_for(request, [JSON, PNG])
    manifest = inspector.manifest(query.model, needs="decode")
    plan = _plan(query, manifest)
    picture = await read_picture(request)
    capsule = await inspector.capsule(picture, manifest, query.fitting, target=query.target)
    images = await decode_sweep(inspector, manifest, capsule, plan)
    if media_type == PNG:
        return await drawn(
            lambda: png(
                draw_sweep(images, plan, manifest=manifest, label=capsule.label, scale=query.scale)
            ),
        )
    return await _form(lambda: SweepAnswer.of(manifest, capsule, plan, images))


@router.post(
    "/routing",
    openapi_extra=PICTURE_BODY,
    response_model=RoutingAnswer,
    responses=PICTURE_OR_PNG,
)
async def routing(request: Request, query: Annotated[RoutingQuery, Query()]) -> Response:
    """Show how the capsules came to agree: couplings, agreement and heat maps by iteration."""
    inspector = inspector_of(request)
    media_type = media_type_for(request, [JSON, PNG])
    manifest = inspector.manifest(query.model, needs="trace")
    picture = await read_picture(request)
    view = await view_routing(inspector, picture, manifest, query.fitting, target=query.target)
    if media_type == PNG:
        return await drawn(lambda: draw_routing(view, manifest, scale=query.scale))
    return await _form(lambda: RoutingAnswer.of(manifest, view, detail=query.detail))


@router.post(
    "/equivariance",
    openapi_extra=PICTURE_BODY,
    response_model=EquivarianceAnswer,
    responses=PICTURE_OR_PNG,
)
async def equivariance(request: Request, query: Annotated[EquivarianceQuery, Query()]) -> Response:
    """Move the fitted picture step by step: does the length stay, and does the pose turn?"""
    inspector = inspector_of(request)
    media_type = media_type_for(request, [JSON, PNG])
    manifest = inspector.manifest(query.model)
    walk = _walk(query)
    picture = await read_picture(request)
    capsule = await inspector.capsule(picture, manifest, query.fitting, target=query.target)
    view = await view_equivariance(inspector, manifest, capsule, walk)
    if media_type == PNG:
        return await drawn(lambda: draw_equivariance(view, manifest))
    return await _form(lambda: EquivarianceAnswer.of(manifest, view))


def _walk(query: EquivarianceQuery) -> Walk:
    try:
        return plan_walk(query.transform, start=query.start, stop=query.stop, steps=query.steps)
    except ValueError as error:
        raise InvalidParameter(str(error), parameter="from") from error


def _poses(body: DecodeBody, manifest: Manifest) -> Any:
    """(M, D).

    Raises:
        InvalidParameter: a pose has not D numbers, or the label is out of range.
    """
    check_label(manifest, body.label, parameter="label")
    for pose in body.all_poses:
        if len(pose) != manifest.class_dim:
            raise InvalidParameter(
                f"a pose has {manifest.class_dim} numbers, not {len(pose)}",
                parameter="pose" if body.pose is not None else "poses",
            )
    return np.array(body.all_poses, np.float32)


def _plan(query: SweepQuery, manifest: Manifest) -> Sweep:
    known = range(manifest.class_dim)
    dims = list(known) if query.dims is None else query.dims
    if not set(dims) <= set(known) or len(set(dims)) < len(dims):
        raise InvalidParameter(f"dims are 0 to {known[-1]}, each once", parameter="dims")
    try:
        return plan_sweep(dims, start=query.start, stop=query.stop, step=query.step)
    except ValueError as error:
        raise InvalidParameter(str(error), parameter="step") from error


async def _form(answer: Callable[[], BaseModel]) -> Response:
    """Answers of hundreds of kilobytes are formed off the event loop."""
    content = await asyncio.to_thread(lambda: answer().model_dump_json(exclude_defaults=True))
    return Response(content, media_type=JSON)
