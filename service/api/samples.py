"""Sample images of the models and of the service, and two digits in one image."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Literal, get_args

from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from model.bundle.samples import Sample, read_samples
from model.canvas import draw_image
from model.pairs import DIGIT_SIZE, MAX_SHIFT_PX, overlay
from model.views.answers import Part
from model.views.view import FitQuery, Scale
from service.api.models import ModelPath
from service.errors import InvalidParameter, unwrap
from service.http.request import FILE_FIELD, Request, read_pictures
from service.http.route import PngResponse, Query
from service.pictures import SAMPLES, ImageSpec, Upload

Dataset = Literal["mnist", "fashion-mnist"]
Label = Annotated[int, Field(ge=0, le=9)]
Distance = Annotated[int, Field(ge=-2 * MAX_SHIFT_PX, le=2 * MAX_SHIFT_PX)]
_SPEC = ImageSpec((1, DIGIT_SIZE, DIGIT_SIZE), "digit")


class SampleQuery(Query):
    """The parameters of `/samples/{label}.png`."""

    label: Label = Field(description="The class of the sample.", examples=[7])
    dataset: Dataset = Field("mnist", description="The data set of the sample.")


class SampleFileQuery(ModelPath):
    """The parameters of `/models/{name}/samples/{file}`."""

    file: str = Field(description="A file of `/models/{name}/samples`.", examples=["7.png"])


class SampleReport(Part):
    """The class, source and licence of one sample."""

    file: str
    label: int | None = Field(
        description="Null where the picture shows none of the classes, or several."
    )
    class_name: str = Field(description="What the picture shows.")
    licence: str
    source: str = Field(description="The maker of the picture, or its data set.")


class SamplesAnswer(BaseModel):
    """The samples of one bundle, at most ten."""

    model: str
    samples: list[SampleReport]


async def show_sample(_request: Request, query: SampleQuery) -> FileResponse:
    """Get a sample image of a class."""
    folder = SAMPLES if query.dataset == "mnist" else SAMPLES / query.dataset
    return FileResponse(folder / f"{query.label}.png")


async def list_samples(request: Request, query: ModelPath) -> SamplesAnswer:
    """List the sample images of a model.

    They are the bundle's own or, where it has none, those of its data set.
    """
    samples = [SampleReport.model_validate(sample) for sample in _samples(request, query.name)]
    return SamplesAnswer(model=query.name, samples=samples)


async def show_sample_of(request: Request, query: SampleFileQuery) -> PngResponse:
    """Get a sample image of a model.

    Raises:
        InvalidParameter: there is none of that name.
    """
    pictures = {sample.file: sample.png for sample in _samples(request, query.name)}
    if query.file not in pictures:
        known = ", ".join(pictures) or "none"
        raise InvalidParameter(f"no sample {query.file!r}; samples: {known}", parameter="file")
    return PngResponse(pictures[query.file])


def _samples(request: Request, name: str) -> Sequence[Sample]:
    manifest = request.manifest(name)
    own = request.engine.samples.get(name)
    return own or _of_dataset(manifest.dataset)


@cache
def _of_dataset(dataset: str) -> Sequence[Sample]:
    """The samples of a data set that come with the service."""
    if dataset not in get_args(Dataset):
        return ()
    return read_samples(SAMPLES if dataset == "mnist" else SAMPLES / dataset, num_classes=10)


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
    first, second = map(unwrap, await request.context.pictures.decode(uploads, spec))
    image = overlay(first.image, second.image, dx=place.dx, dy=place.dy)
    return PngResponse(await request.context.slow.run(draw_image, image, place.scale))
