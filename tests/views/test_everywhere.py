"""A view answers alike wherever it is asked."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

import model
from capsnet import AsyncCapsNet, CapsNet
from model.loaded import LoadedBundle
from model.views import NAMES, find_view
from service.settings import Settings
from tests.serving import Served, serve
from tests.views.questions import QUESTIONS

Json = dict[str, Any]
JSON, PNG = "application/json", "image/png"
DRAWN = [name for name in NAMES if find_view(name).draw]
PLAIN = [name for name in DRAWN if not find_view(name).figure]
FAMILIES = ("dynamic", "attention", "shared", "matrix", "baseline")
TARGETED = [name for name in NAMES if "target" in find_view(name).query.model_fields]


@pytest.fixture(scope="module")
def service(shipped: httpx.Client) -> httpx.Client:
    """The service of all bundles that ship."""
    return shipped


@pytest.fixture(scope="module")
def capsnet(service: httpx.Client) -> Iterator[CapsNet]:
    """The Python client of the same service."""
    with CapsNet(str(service.base_url), timeout_s=60) as client:
        yield client


@cache
def loaded(name: str) -> LoadedBundle:
    """A bundle in this process."""
    return model.load(name, device="cpu", threads=1)


def send(service: httpx.Client, view: str, accept: str = JSON, **more: Any) -> httpx.Response:
    """Ask a service the question that the tests have for a view, with some parameters changed."""
    question, path = QUESTIONS[view], f"/{view.replace('_', '-')}"
    sent: Json = {"json": question.body}
    if question.pictures:
        sent = {"files": [("file", picture) for picture in question.pictures]}
    params = {"model": question.model, **question.parameters, **more}
    params = {name: value for name, value in params.items() if value is not None}
    return service.post(path, params=params, headers={"Accept": accept}, **sent)


def post(service: httpx.Client, view: str, accept: str = JSON, **more: Any) -> bytes:
    """What the service answers."""
    answer = send(service, view, accept, **more)
    assert (200, accept) == (answer.status_code, answer.headers["content-type"]), answer.text
    return answer.content


def ask(asked: Any, view: str, **more: Any) -> Any:
    """What the method of the client or of a bundle returns."""
    question = QUESTIONS[view]
    arguments = [*question.pictures, *question.body.values()]
    return getattr(asked, view)(*arguments, **question.parameters, **more)


def one_prediction(view: str, answer: Json) -> Json:
    """The JSON of an answer; of the one prediction, with what stands next to the list."""
    if view != "classify":
        return answer
    (prediction,) = answer.pop("predictions")
    return {**answer, **prediction}


@pytest.mark.parametrize("view", NAMES)
def test_a_bundle_answers_as_a_service_does(view: str, service: httpx.Client) -> None:
    """The same JSON and, for views that draw, the same PNG."""
    answer = ask(loaded(QUESTIONS[view].model), view)
    answered = one_prediction(view, json.loads(post(service, view)))
    assert answered.keys() == answer.dict().keys()
    compare(answered, answer.dict())
    if view in DRAWN:
        assert post(service, view, PNG) == answer.png()


@pytest.mark.parametrize("view", NAMES)
def test_the_client_reads_what_a_bundle_answers(view: str, capsnet: CapsNet) -> None:
    """The same members, awaited too; images are Pillow's there, and drawings have their pixels."""
    question, bundle = QUESTIONS[view], loaded(QUESTIONS[view].model)

    async def wait() -> Any:
        async with AsyncCapsNet(str(capsnet.url), timeout_s=60) as client:
            return await ask(client, view, model=question.model)

    answer, expected = ask(capsnet, view, model=question.model).to_dict(), ask(bundle, view)
    assert expected.dict().keys() <= answer.keys()
    compare(expected.dict(), answer)
    compare(answer, asyncio.run(wait()).to_dict())
    if view in DRAWN:
        drawn = ask(capsnet.draw(), view, model=question.model)
        with Image.open(io.BytesIO(expected.png())) as image:
            np.testing.assert_array_equal(np.asarray(image), np.asarray(drawn))


@pytest.mark.parametrize("view", NAMES)
def test_a_png_is_sent_exactly_where_one_is_drawn(view: str, service: httpx.Client) -> None:
    """Who accepts anything gets JSON; 406 is for other types."""
    assert JSON == send(service, view, "*/*").headers["content-type"]
    assert 406 == send(service, view, "text/html, image/jpeg").status_code
    assert (200 if view in DRAWN else 406) == send(service, view, PNG).status_code


@pytest.mark.parametrize("view", PLAIN)
def test_scale_enlarges_by_whole_pixels(view: str, service: httpx.Client) -> None:
    """Each pixel becomes a square; none is blended."""
    small, large = (
        np.asarray(Image.open(io.BytesIO(post(service, view, PNG, scale=scale))))
        for scale in (1, 3)
    )
    np.testing.assert_array_equal(small.repeat(3, axis=0).repeat(3, axis=1), large)


@pytest.mark.parametrize("view", TARGETED)
def test_a_view_looks_at_the_class_that_is_asked_for(view: str, service: httpx.Client) -> None:
    """A class that the network lacks is a 422, which names the parameter."""
    answers = [json.loads(post(service, view, target=target)) for target in (2, 8)]
    for target, answer in zip((2, 8), answers, strict=True):
        assert target == answer.get("target", answer.get("label"))
    assert answers[0] != answers[1]
    refused = send(service, view, target=10)
    assert (422, "target") == (refused.status_code, refused.json()["parameter"])


@pytest.mark.parametrize("view", NAMES)
def test_what_is_wrong_is_a_problem(view: str, service: httpx.Client) -> None:
    """In JSON, also for those who accept a PNG, with the parameter at fault."""
    for more, expected in (({"colour": "red"}, (422, "colour")), ({"model": "x"}, (404, "model"))):
        refused = send(service, view, PNG if view in DRAWN else JSON, **more)
        assert expected == (refused.status_code, refused.json()["parameter"]), refused.text
        assert "application/problem+json" == refused.headers["content-type"]
    if pictures := QUESTIONS[view].pictures:
        files = [("file", b"no picture")] * len(pictures)
        path = f"/{view.replace('_', '-')}"
        params = {**QUESTIONS[view].parameters, "model": QUESTIONS[view].model}
        assert 415 == service.post(path, params=params, files=files).status_code


@pytest.fixture(scope="module")
def families(settings: Settings, family_bundles: Path) -> Iterator[Served]:
    """A service with an untrained network of each family."""
    with serve(settings, bundles=family_bundles, default_model="tiny-dynamic") as client:
        yield client


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("view", NAMES)
def test_a_family_answers_what_it_offers(view: str, family: str, families: Served) -> None:
    """409, in JSON whatever was asked for, says that a network does not offer a view."""
    name, declared = f"tiny-{family}", find_view(view)
    offers = families.get(f"/models/{name}").json()["offers"]
    more: Json = {"model": name}
    if view == "classify":
        more |= {"novelty": None, "poses": "decode" in offers}
    for accept in (JSON, PNG) if declared.draw else (JSON,):
        answer = send(families, view, accept, **more)
        if declared.needs and declared.needs not in offers:
            expected = (409, "urn:capsnet:problem:not-offered")
            assert expected == (answer.status_code, answer.json()["type"])
            assert f"'{name}' does not offer {declared.needs};" in answer.json()["detail"]
        elif view == "describe":  # the directions of none of these networks were measured
            assert 409 == answer.status_code, answer.text
        elif declared.of_pairs:  # none of these networks is for pairs
            assert (422, "model") == (answer.status_code, answer.json()["parameter"])
        else:
            expected = (200, accept)
            assert expected == (answer.status_code, answer.headers["content-type"]), answer.text
            assert accept == PNG or name == answer.json()["model"]


@pytest.mark.parametrize(
    "view",
    [
        name
        for name in NAMES
        if name != "classify" and len(QUESTIONS[name].pictures) == 1 and not QUESTIONS[name].body
    ],
)
def test_ray_scores_any_view_of_one_picture(view: str, tmp_path: Path) -> None:
    """The function that an actor runs gives the same JSON."""
    pa = pytest.importorskip("pyarrow")
    from deploy.ray.score import Scorer, Wanted  # noqa: PLC0415  needs the extra

    question, picture = QUESTIONS[view], tmp_path / "0.png"
    picture.write_bytes(question.pictures[0])
    scorer = Scorer(Wanted(question.model, view=view, parameters=question.parameters))
    (row,) = scorer(pa.table({"path": [str(picture)]})).to_pylist()
    assert row["error"] is None
    assert ask(loaded(question.model), view).dict() == json.loads(row["answer"])


def compare(expected: Any, actual: Any) -> None:
    """Compare JSON, pictures by their pixels.

    A batch that the service shares with another test's request may change the sixth decimal.
    """
    match expected:
        case dict():
            for name, value in expected.items():
                compare(value, actual[name])
        case list():
            assert len(expected) == len(actual)
            for value, other in zip(expected, actual, strict=True):
                compare(value, other)
        case str() if expected.startswith("data:image/png"):
            np.testing.assert_array_equal(pixels(expected), pixels(actual))
        case tuple():
            compare(list(expected), list(actual))
        case float():
            assert actual == pytest.approx(expected, rel=3e-6, abs=3e-6)
        case _:
            assert expected == actual


def pixels(url: str) -> Any:
    """Of a data URL."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))
