"""The routes for two digits in one picture: taking them apart, and laying them over one another."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from service.documentation import (
    PICTURE_BODY,
    PICTURE_OR_PNG,
    PNG_ALONE,
    PROBLEMS,
    SAMPLES,
    TWO_PICTURES_BODY,
)
from service.gate import GatedRoute, inspector_of
from service.images import encode_png
from service.inspector import Inspector
from service.negotiation import JSON, PNG, drawn, media_type_for
from service.pairs.answers import SegmentAnswer
from service.pairs.overlay import DIGIT_SIZE, overlay
from service.pairs.queries import OverlayQuery, OverlaySamplesQuery, PlaceQuery, SegmentQuery
from service.pairs.segmentation import choose_manifest, segment
from service.preparation import Fitting, Frame
from service.problems import InvalidParameter, Problem
from service.uploads import FILE_FIELD, Upload, read_picture, read_pictures

router = APIRouter(responses=PROBLEMS, route_class=GatedRoute)


@router.post(
    "/segment",
    openapi_extra=PICTURE_BODY,
    response_model=SegmentAnswer,
    responses=PICTURE_OR_PNG,
)
async def segment_picture(
    request: Request, query: Annotated[SegmentQuery, Query()]
) -> Response | SegmentAnswer:
    """Take overlapping digits apart: which strokes are whose (paper, section 6)."""
    inspector = inspector_of(request)
    media_type = media_type_for(request, [JSON, PNG])
    manifest = choose_manifest(inspector, query.model)
    picture = await read_picture(request)
    (encoded,) = await inspector.encode([picture], manifest, query.fitting)
    if isinstance(encoded, Problem):
        raise encoded
    found = await segment(inspector, encoded, manifest, count=query.count)
    if media_type == PNG:
        return await drawn(lambda: encode_png(found.paint(), scale=query.scale))
    return SegmentAnswer.of(manifest, found)


@router.post(
    "/overlay", openapi_extra=TWO_PICTURES_BODY, responses=PNG_ALONE, response_class=Response
)
async def overlay_pictures(request: Request, query: Annotated[OverlayQuery, Query()]) -> Response:
    """Lay the second of two pictures of a digit over the first, as a picture for `/segment`."""
    inspector = inspector_of(request)
    media_type_for(request, [PNG])
    uploads = await read_pictures(request, max_pictures=2)
    if len(uploads) != 2:
        raise InvalidParameter("send two pictures, one of each digit", parameter=FILE_FIELD)
    return await _overlay(inspector, uploads, query, query.fitting)


@router.get("/overlay", responses=PNG_ALONE, response_class=Response)
async def overlay_samples(
    request: Request, query: Annotated[OverlaySamplesQuery, Query()]
) -> Response:
    """Lay one sample digit over another, as a picture for `/segment`."""
    inspector = inspector_of(request)
    media_type_for(request, [PNG])
    uploads: list[Upload] = [
        (SAMPLES / f"{label}.png").read_bytes() for label in (query.first, query.second)
    ]
    return await _overlay(inspector, uploads, query, Fitting())


async def _overlay(
    inspector: Inspector, uploads: list[Upload], place: PlaceQuery, fitting: Fitting
) -> Response:
    frame = Frame((1, DIGIT_SIZE, DIGIT_SIZE), "digit")
    first, second = (one.image for one in await inspector.prepare_all(uploads, frame, fitting))
    image = overlay(first, second, dx=place.dx, dy=place.dy)
    return await drawn(lambda: encode_png(image, scale=place.scale))
