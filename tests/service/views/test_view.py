from __future__ import annotations

from typing import Any

import pytest

from model.preprocess import Prepared
from model.views.answers import ModelAnswer, answer_fields
from model.views.net import Net
from model.views.query import PictureQuery
from model.views.view import View
from service.api.routes import max_view_cost
from service.app import create_app
from service.settings import Settings
from service.views import VIEWS, AnyView

MAX_COST = 5000


class CostlyQuery(PictureQuery):
    """Of a view that nobody needs."""

    max_rows = MAX_COST - 1


class CostlyAnswer(ModelAnswer):
    """Of a view that nobody needs."""


async def costly(net: Net, query: CostlyQuery, picture: Prepared) -> CostlyAnswer:
    """Compute for long."""
    del query, picture
    return CostlyAnswer(**answer_fields(net.manifest))


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> AnyView:
    """A view that costs more than all others."""
    view = View(
        name="costly",
        query=CostlyQuery,
        answer=CostlyAnswer,
        compute=costly,
        needs="decode",
    )
    monkeypatch.setattr("service.api.routes.VIEWS", [*VIEWS, view])
    return view


def test_the_largest_view_is_admitted(declared: AnyView) -> None:
    """Whatever the setting says: what is accepted must fit into the queue."""
    assert MAX_COST == max_view_cost(max_pictures=1) == declared.max_cost(1)
    app = create_app(Settings(max_waiting_rows=1))
    assert MAX_COST == app.state.admission.limit_rows


def test_some_cost_more_the_more_images_there_are() -> None:
    """Each image of /classify is encoded, and decoded for its novelty."""
    rows = {view.name: (view.max_cost(1), view.max_cost(1000)) for view in VIEWS}
    assert (2, 2001) == rows["classify"]
    assert {True} == {few == many for name, (few, many) in rows.items() if name != "classify"}
    assert 2001 == max_view_cost(max_pictures=1000)


@pytest.mark.usefixtures("declared")
def test_a_declared_view_is_in_the_document() -> None:
    """With the problems of images and of networks."""
    paths: dict[str, Any] = create_app(Settings()).openapi()["paths"]
    operation = paths["/costly"]["post"]
    assert ("costly", "Compute for long") == (operation["operationId"], operation["summary"])
    assert {"404", "409", "413", "415", "422", "429"} <= operation["responses"].keys()
