"""`GET /samples/{label}.png`, and two digits in one picture: `POST` and `GET /overlay`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Literal

from fastapi import Request
from fastapi.responses import FileResponse
from pydantic import Field

from model.interpret.overlay import DIGIT_SIZE, MAX_SHIFT_PX, overlay
from service.api.queries import FitQuery, Query, Scale
from service.errors import InvalidParameter, checked
from service.http.route import Call, Picture
from service.http.uploads import FILE_FIELD, read_pictures
from service.pictures import SAMPLES
from service.pictures.decode import encode_png
from service.pictures.prepare import Frame, Upload

Distance = Annotated[int, Field(ge=-2 * MAX_SHIFT_PX, le=2 * MAX_SHIFT_PX)]
Label = Annotated[int, Field(ge=0, le=9)]
_FRAME = Frame((1, DIGIT_SIZE, DIGIT_SIZE), "digit")


class SampleQuery(Query):
    """Of `/samples/{label}.png`."""

    label: int = Field(ge=0, le=9, examples=[7])
    dataset: Literal["mnist", "fashion-mnist"] = Field("mnist", description="As in a manifest.")


async def show_sample(_request: Request, query: SampleQuery) -> FileResponse:
    """Give a real picture of a class to try the routes on."""
    folder = SAMPLES if query.dataset == "mnist" else SAMPLES / query.dataset
    return FileResponse(folder / f"{query.label}.png")


class PlaceQuery(Query):
    """How two digits lie in one picture."""

    dx: Distance = Field(4, description="Pixels by which the second digit lies right of the first.")
    dy: Distance = Field(4, description="Pixels by which the second digit lies below the first.")
    scale: Scale = 1


class OverlayQuery(FitQuery, PlaceQuery):
    """Of `POST /overlay`."""


class OverlaySamplesQuery(PlaceQuery):
    """Of `GET /overlay`."""

    first: Label = Field(description="A sample digit.", examples=[3])
    second: Label = Field(description="A sample digit.", examples=[5])


async def overlay_pictures(call: Call, query: OverlayQuery) -> Picture:
    """Lay the second of two pictures of a digit over the first, as a picture for `/segment`."""
    uploads = await read_pictures(call, max_pictures=2)
    if len(uploads) != 2:
        raise InvalidParameter("send two pictures, one of each digit", parameter=FILE_FIELD)
    frame = _FRAME._replace(fit=query.fit, polarity=query.polarity)
    return await _overlay(call, uploads, query, frame)


async def overlay_samples(call: Call, query: OverlaySamplesQuery) -> Picture:
    """Lay one sample digit over another, as a picture for `/segment`."""
    labels = (query.first, query.second)
    uploads: list[Upload] = [(SAMPLES / f"{label}.png").read_bytes() for label in labels]
    return await _overlay(call, uploads, query, _FRAME)


async def _overlay(call: Call, uploads: list[Upload], place: PlaceQuery, frame: Frame) -> Picture:
    call.inspector.admit(len(uploads))
    first, second = map(checked, await call.inspector.prepare(uploads, frame))
    image = overlay(first.image, second.image, dx=place.dx, dy=place.dy)
    return Picture(await asyncio.to_thread(partial(encode_png, image, scale=place.scale)))
