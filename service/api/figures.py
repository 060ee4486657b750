"""The figures of the bundles' cards."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from model.bundle.figures import Figure
from model.views.answers import Part
from service.api.models import ModelPath
from service.api.samples import find_png
from service.http.request import Request
from service.http.route import PngResponse


class FigureQuery(ModelPath):
    """The parameters of `/models/{name}/figures/{file}`."""

    file: str = Field(description="A file of `/models/{name}/figures`.", examples=["explained.png"])


class FigureReport(Part):
    """A figure of a model's card."""

    file: str
    shows: str = Field(description="What the figure shows, in words.")


class FiguresAnswer(BaseModel):
    """The figures of one bundle."""

    model: str
    figures: list[FigureReport]


async def list_figures(request: Request, query: ModelPath) -> FiguresAnswer:
    """List the figures of a model's card.

    An older bundle may have none.
    """
    figures = [FigureReport.model_validate(figure) for figure in _figures(request, query.name)]
    return FiguresAnswer(model=query.name, figures=figures)


async def show_figure(request: Request, query: FigureQuery) -> PngResponse:
    """Get a figure of a model's card.

    Raises:
        InvalidParameter: there is none of that name.
    """
    return find_png("figure", _figures(request, query.name), query.file)


def _figures(request: Request, name: str) -> Sequence[Figure]:
    return request.engine.figures.get(request.manifest(name).name, ())
