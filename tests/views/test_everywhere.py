"""A view answers alike wherever it is asked."""

from __future__ import annotations

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
from capsnet import CapsNet
from model.loaded import LoadedBundle
from model.views import NAMES
from tests.processes import SOURCE, running
from tests.views.questions import QUESTIONS

Json = dict[str, Any]
MODELS = sorted({question.model for question in QUESTIONS.values()})


@pytest.fixture(scope="module")
def service() -> Iterator[httpx.Client]:
    """A service of two bundles that ship."""
    settings = {
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_THREADS": "1",
        "CAPSNET_WORKERS": "1",
        "CAPSNET_MODELS": json.dumps(MODELS),
        "CAPSNET_DEFAULT_MODEL": MODELS[0],
    }
    with running(lambda _: SOURCE, settings) as (_, client):
        yield client


@pytest.fixture(scope="module")
def capsnet(service: httpx.Client) -> Iterator[CapsNet]:
    """The Python client of the same service."""
    with CapsNet(str(service.base_url), timeout_s=60) as client:
        yield client


@cache
def loaded(name: str) -> LoadedBundle:
    """A bundle in this process."""
    return model.load(name, device="cpu", threads=1)


def post(service: httpx.Client, view: str, accept: str = "application/json") -> bytes:
    """What the service answers."""
    question, path = QUESTIONS[view], f"/{view.replace('_', '-')}"
    sent: Json = {"json": question.body}
    if question.pictures:
        sent = {"files": [("file", picture) for picture in question.pictures]}
    params = {"model": question.model, **question.parameters}
    answer = service.post(path, params=params, headers={"Accept": accept}, **sent)
    assert 200 == answer.status_code, answer.text
    return answer.content


def ask(asked: CapsNet | LoadedBundle, view: str, **more: Any) -> Any:
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
    assert one_prediction(view, json.loads(post(service, view))) == answer.dict()
    if view != "classify":
        assert post(service, view, "image/png") == answer.png()


@pytest.mark.parametrize("view", NAMES)
def test_the_client_reads_what_a_bundle_answers(view: str, capsnet: CapsNet) -> None:
    """The same members; images are Pillow's there."""
    answer = ask(capsnet, view, model=QUESTIONS[view].model).to_dict()
    expected = ask(loaded(QUESTIONS[view].model), view).dict()
    assert expected.keys() <= answer.keys()
    compare(expected, answer)


@pytest.mark.parametrize("view", NAMES)
def test_ray_scores_any_view(view: str, tmp_path: Path) -> None:
    """The function that an actor runs gives the same JSON."""
    pa = pytest.importorskip("pyarrow")
    from deploy.ray.scorer import Scorer, Wanted  # noqa: PLC0415  needs the extra

    question, columns = QUESTIONS[view], {"path": [str(tmp_path / "0.png")]}
    for name, picture in zip(("0.png", "1.png"), question.pictures, strict=False):
        (tmp_path / name).write_bytes(picture)
    more = {"second": [str(tmp_path / "1.png")]} if len(question.pictures) == 2 else {}
    more |= {name: [value] for name, value in question.body.items()}
    scorer = Scorer(Wanted(question.model, view=view, parameters=question.parameters))
    try:
        (row,) = scorer(pa.table({**columns, **more})).to_pylist()
    finally:
        scorer.close()
    assert row["error"] is None
    answer = one_prediction(view, json.loads(row["answer"]))
    assert ask(loaded(question.model), view).dict() == answer


def compare(expected: Any, actual: Any) -> None:
    """Compare JSON, pictures by their pixels."""
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
        case _:
            assert expected == actual


def pixels(url: str) -> Any:
    """Of a data URL."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))
