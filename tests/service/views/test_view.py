from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from service.api.routes import max_view_cost
from service.app import create_app
from service.http.route import DeferredJson, Request
from service.settings import Settings
from service.views import VIEWS
from service.views.schemas import PictureQuery
from service.views.view import View

MAX_COST = 5000


class CostlyAnswer(BaseModel):
    """Of a view that nobody needs."""


async def costly(request: Request, query: PictureQuery) -> DeferredJson[CostlyAnswer]:
    """Compute for long."""
    request.pipeline.manifest(query.model)
    return DeferredJson(CostlyAnswer)


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> View:
    """A view that costs more than all others, and was at the path `/dear`."""
    view = View(path="/costly", former_path="/dear", handler=costly, max_cost=MAX_COST)
    monkeypatch.setattr("service.api.routes.VIEWS", [*VIEWS, view])
    return view


def test_a_view_has_to_say_what_it_costs() -> None:
    """It cannot be forgotten."""
    with pytest.raises(TypeError, match="max_cost"):
        View(path="/costly", handler=costly)  # type: ignore[call-arg]


def test_the_largest_view_is_admitted(declared: View) -> None:
    """Whatever the setting says: what is accepted must fit into the queue."""
    assert MAX_COST == max_view_cost(max_pictures=1) == declared.max_cost_for(1)
    app = create_app(Settings(max_waiting_rows=1))
    assert MAX_COST == app.state.admission.limit


def test_some_cost_more_the_more_images_there_are() -> None:
    """Each image of /classify is encoded, and decoded for its novelty."""
    rows = {view.path: (view.max_cost_for(1), view.max_cost_for(1000)) for view in VIEWS}
    assert (3, 2001) == rows["/classify"]
    assert {True} == {few == many for path, (few, many) in rows.items() if path != "/classify"}
    assert 2001 == max_view_cost(max_pictures=1000)


@pytest.mark.usefixtures("declared")
def test_a_declared_view_is_in_the_document() -> None:
    """By its new path alone, with the problems of images and of networks."""
    paths: dict[str, Any] = create_app(Settings()).openapi()["paths"]
    assert "/dear" not in paths
    operation = paths["/costly"]["post"]
    assert ("costly", "Compute for long") == (operation["operationId"], operation["summary"])
    assert {"404", "409", "413", "415", "422", "429"} <= operation["responses"].keys()
