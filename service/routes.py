"""The routes: what comes in over HTTP, who answers it, and in which form it goes out."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse

from service.answers import (
    ClassifyAnswer,
    FailedPrediction,
    Liveness,
    ModelsAnswer,
    ModelSummary,
    PerturbAnswer,
    Prediction,
    Readiness,
    ReconstructAnswer,
)
from service.documentation import PICTURE_BODY, PICTURE_OR_PNG, PNG_ALONE, PROBLEMS, SAMPLES
from service.gate import GatedRoute, inspector_of
from service.images import encode_png
from service.inside.novelty import score_novelty
from service.inspector import Encoded, Inspector, check_dim
from service.lifecycle import Lifecycle
from service.loading import Loader, ReloadRefused
from service.metrics import CONTENT_TYPE
from service.negotiation import JSON, PNG, drawn, media_type_for
from service.problems import BundleRefused, Problem, Unavailable
from service.queries import ClassifyQuery, PerturbQuery, ReconstructQuery, SampleQuery
from service.uploads import read_picture, read_pictures

router = APIRouter(responses=PROBLEMS, route_class=GatedRoute)
static_routes = APIRouter(responses=PROBLEMS)
"""What needs no network."""
administration = APIRouter(responses=PROBLEMS)
"""What only a service with API keys offers."""
probes = APIRouter(responses=PROBLEMS)
"""What has to be answered to anyone, at any time."""


@router.post(
    "/classify",
    openapi_extra=PICTURE_BODY,
    response_model_exclude_defaults=True,
)
async def classify(request: Request, query: Annotated[ClassifyQuery, Query()]) -> ClassifyAnswer:
    """Say which class each picture shows, by the lengths of the class capsules."""
    inspector = inspector_of(request)
    media_type_for(request, [JSON])
    manifest = inspector.manifest(
        query.model, needs="decode" if query.poses or query.known else None
    )
    uploads = await read_pictures(request, max_pictures=request.app.state.settings.max_pictures)
    encoded = await inspector.encode(uploads, manifest, query.fitting)
    if len(encoded) == 1 and isinstance(encoded[0], Problem):
        raise encoded[0]
    found = [one for one in encoded if isinstance(one, Encoded)]
    novelty = iter(await score_novelty(inspector, manifest, found) if query.known else ())
    predictions = [
        FailedPrediction.of(one)
        if isinstance(one, Problem)
        else Prediction.of(manifest, one, next(novelty, None), poses=query.poses)
        for one in encoded
    ]
    return ClassifyAnswer(model=manifest.name, version=manifest.version, predictions=predictions)


@router.post(
    "/reconstruct",
    openapi_extra=PICTURE_BODY,
    response_model=ReconstructAnswer,
    responses=PICTURE_OR_PNG,
)
async def reconstruct(request: Request, query: Annotated[ReconstructQuery, Query()]) -> Any:
    """Draw what the network imagines: the decoded pose of one class capsule."""
    inspector = inspector_of(request)
    media_type = media_type_for(request, [JSON, PNG])
    manifest = inspector.manifest(query.model, needs="decode")
    picture = await read_picture(request)
    found = await inspector.reconstruct(picture, manifest, query.fitting, target=query.target)
    if media_type == PNG:
        return await drawn(lambda: encode_png(found.image, scale=query.scale))
    return ReconstructAnswer.of(manifest, found)


@router.post(
    "/perturb",
    openapi_extra=PICTURE_BODY,
    response_model=PerturbAnswer,
    responses=PICTURE_OR_PNG,
)
async def perturb(request: Request, query: Annotated[PerturbQuery, Query()]) -> Any:
    """Move one dimension of the pose and draw the picture again (paper, section 5.1)."""
    inspector = inspector_of(request)
    media_type = media_type_for(request, [JSON, PNG])
    manifest = inspector.manifest(query.model, needs="decode")
    check_dim(manifest, query.dim)
    picture = await read_picture(request)
    found = await inspector.reconstruct(picture, manifest, query.fitting, target=query.target)
    perturbation = await inspector.perturb(found, manifest, dim=query.dim, delta=query.delta)
    if media_type == PNG:
        return await drawn(lambda: encode_png(perturbation.image, scale=query.scale))
    return PerturbAnswer.of(manifest, perturbation)


@router.get("/models")
async def list_models(request: Request) -> ModelsAnswer:
    """Name the loaded bundles."""
    return _list_models(inspector_of(request))


def _list_models(inspector: Inspector) -> ModelsAnswer:
    return ModelsAnswer(
        provider=inspector.engine.provider,
        models=[
            ModelSummary.of(manifest, default=name == inspector.default_model)
            for name, manifest in sorted(inspector.manifests.items())
        ],
    )


@administration.post("/models/reload")
async def reload_models(request: Request) -> ModelsAnswer:
    """Load all bundles anew and exchange them between requests, or leave all as they are."""
    loader: Loader = request.app.state.loader
    try:
        await asyncio.get_running_loop().run_in_executor(loader.thread, loader.reload)
    except ReloadRefused as error:
        raise BundleRefused(str(error)) from error
    with request.app.state.serving.inspector() as inspector:
        return _list_models(inspector)


@router.get("/models/{name}")
async def show_model(
    request: Request, name: Annotated[str, Path(examples=["mnist"])]
) -> dict[str, Any]:
    """Give one bundle's whole manifest, and what its pose dimensions do in words."""
    manifest = inspector_of(request).manifest(name)
    dimensions = [{**asdict(one), "effect": one.effect} for one in manifest.pose_dimensions]
    return {**manifest.to_dict(), "pose_dimensions": dimensions}


@static_routes.get("/samples/{label}.png", response_class=FileResponse, responses=PNG_ALONE)
async def show_sample(
    label: Annotated[int, Path(ge=0, le=9, examples=[7])], query: Annotated[SampleQuery, Query()]
) -> FileResponse:
    """Give a real picture of a class to try the routes on."""
    folder = SAMPLES if query.dataset == "mnist" else SAMPLES / query.dataset
    return FileResponse(folder / f"{label}.png")


@static_routes.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Give the metrics in Prometheus' text format."""
    return Response(request.app.state.metrics.render(), media_type=CONTENT_TYPE)


@probes.get("/livez")
async def livez(request: Request) -> Liveness:
    """Say that the process is up and can infer; if not, it should be restarted."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    if lifecycle.failure:
        raise Unavailable(lifecycle.failure)
    return Liveness()


@probes.get("/readyz")
async def readyz(request: Request) -> Readiness:
    """Say that requests are taken, and on which device."""
    lifecycle: Lifecycle = request.app.state.lifecycle
    with request.app.state.serving.inspector() as inspector:
        if lifecycle.failure or lifecycle.draining:
            raise Unavailable(lifecycle.failure or "the service is draining", retry_after_s=1)
        return Readiness(provider=inspector.engine.provider, models=sorted(inspector.manifests))
