"""`POST` and `GET /overlay`: two digits in one image."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from model.canvas import draw_image
from model.overlay import DIGIT_SIZE, MAX_SHIFT_PX, overlay
from model.views.query import FitQuery, Scale
from service.api.samples import Label
from service.errors import InvalidParameter, unwrap
from service.http.request import Request
from service.http.route import PngResponse, Query
from service.http.uploads import FILE_FIELD, read_pictures
from service.pictures import SAMPLES, ImageSpec, Upload

Distance = Annotated[int, Field(ge=-2 * MAX_SHIFT_PX, le=2 * MAX_SHIFT_PX)]
_SPEC = ImageSpec((1, DIGIT_SIZE, DIGIT_SIZE), "digit")


class OffsetQuery(Query):
    """The offsets of two digits in one image."""

    dx: Distance = Field(4, description="Pixels by which the second digit lies right of the first.")
    dy: Distance = Field(4, description="Pixels by which the second digit lies below the first.")
    scale: Scale = 1


class OverlayQuery(FitQuery, OffsetQuery):
    """The parameters of `POST /overlay`."""


class OverlaySamplesQuery(OffsetQuery):
    """The parameters of `GET /overlay`."""

    first: Label = Field(description="A sample digit.", examples=[3])
    second: Label = Field(description="A sample digit.", examples=[5])


async def overlay_images(request: Request, query: OverlayQuery) -> PngResponse:
    """Overlay two images of digits, for /segment."""
    uploads = await read_pictures(request, max_pictures=2)
    if len(uploads) != 2:
        raise InvalidParameter("send two images, one of each digit", parameter=FILE_FIELD)
    spec = _SPEC._replace(fit=query.fit, polarity=query.polarity)
    return await _overlay(request, uploads, query, spec)


async def overlay_samples(request: Request, query: OverlaySamplesQuery) -> PngResponse:
    """Overlay two sample digits, for /segment."""
    labels = (query.first, query.second)
    uploads: list[Upload] = [(SAMPLES / f"{label}.png").read_bytes() for label in labels]
    return await _overlay(request, uploads, query, _SPEC)


async def _overlay(
    request: Request, uploads: list[Upload], place: OffsetQuery, spec: ImageSpec
) -> PngResponse:
    request.admit(len(uploads))
    first, second = map(unwrap, await request.decode(uploads, spec))
    image = overlay(first.image, second.image, dx=place.dx, dy=place.dy)
    return PngResponse(await request.context.slow.run(draw_image, image, place.scale))
