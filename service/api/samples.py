"""`GET /samples/{label}.png`."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi.responses import FileResponse
from pydantic import Field

from service.http.route import Query, Request
from service.pictures import SAMPLES

Label = Annotated[int, Field(ge=0, le=9)]


class SampleQuery(Query):
    """Of `/samples/{label}.png`."""

    label: Label = Field(examples=[7])
    dataset: Literal["mnist", "fashion-mnist"] = Field("mnist", description="As in a manifest.")


async def show_sample(_request: Request, query: SampleQuery) -> FileResponse:
    """Get a sample image of a class."""
    folder = SAMPLES if query.dataset == "mnist" else SAMPLES / query.dataset
    return FileResponse(folder / f"{query.label}.png")
