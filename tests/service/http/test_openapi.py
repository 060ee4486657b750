from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import SecretStr

from service.api.routes import api_routes
from service.app import create_app
from service.http.keys import Access
from service.http.request import JSON, PNG
from service.settings import Settings
from tools.client import Json
from tools.examples import ADMIN_KEY, call, no_reload

WITH_ADMIN_KEY = Settings(admin_keys=(SecretStr(ADMIN_KEY),))
ROUTES = [
    (method.lower(), route.path)
    for route in api_routes(Access(WITH_ADMIN_KEY), max_pictures=1)
    if route.include_in_schema
    for method in route.methods or ()
]
each_operation = pytest.mark.parametrize(("method", "path"), ROUTES, ids=map(" ".join, ROUTES))
Check = Callable[[Json, Any], list[str]]


@pytest.fixture(scope="module")
def client(client: TestClient, settings: Settings) -> TestClient:
    """The service with all of its routes; the bundles are those of the other."""
    assert isinstance(client.app, FastAPI)
    app = create_app(settings.model_copy(update={"admin_keys": WITH_ADMIN_KEY.admin_keys}))
    app.state.loaded, app.state.reload = client.app.state.loaded, partial(no_reload, app)
    app.state.pictures, app.state.drawing = (
        client.app.state.pictures,
        client.app.state.drawing,
    )
    return TestClient(app, base_url="http://localhost")


@pytest.fixture(scope="module")
def document(client: TestClient) -> Json:
    found: Json = client.get("/openapi.json").json()
    return found


def test_the_document_names_the_root_path(client: TestClient) -> None:
    """Behind a proxy that takes a prefix off, callers have to add it."""
    with_prefix = TestClient(client.app, root_path="/capsules", base_url="http://localhost")
    assert [{"url": "/capsules"}] == with_prefix.get("/openapi.json").json()["servers"]


def closed(schema: Any) -> Any:
    """A schema that has no member but those that it names."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    open_object = "properties" in schema and "oneOf" not in schema
    extra = {"additionalProperties": False} if open_object else {}
    return {**extra, **{name: closed(one) for name, one in schema.items()}}


@pytest.fixture(scope="module")
def check(document: Json) -> Check:
    """`check(schema, value)` gives what is wrong with a value."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415  takes seconds

    components = {"components": closed(document["components"])}

    def check(schema: Json, value: Any) -> list[str]:
        Draft202012Validator.check_schema(schema)
        validator = Draft202012Validator({**schema, **components})
        return [error.message for error in validator.iter_errors(value)]

    return check


def resolve(document: Json, found: Json) -> Json:
    """What a reference of the document points at, or the thing itself."""
    for name in found.get("$ref", "").split("/")[1:]:
        document = document[name]
    return document if "$ref" in found else found


@each_operation
def test_every_example_is_valid(method: str, path: str, document: Json, check: Check) -> None:
    """Of parameters, requests, answers and problems."""
    operation = document["paths"][path][method]
    found = [
        (parameter["schema"], example)
        for parameter in operation.get("parameters", ())
        for example in parameter["schema"].get("examples", ())
    ]
    answers = [resolve(document, one) for one in operation["responses"].values()]
    for part in (operation.get("requestBody", {"content": {}}), *answers):
        for content in part["content"].values():
            examples = content.get("examples", {}).values()
            values = [one["value"] for one in examples if "value" in one]
            values += [content["example"]] if "example" in content else []
            found += [(content["schema"], value) for value in values]
    assert [] == [fault for schema, value in found for fault in check(schema, value)]
    assert PNG in answers[0]["content"] or "example" in next(iter(answers[0]["content"].values()))


@each_operation
def test_every_example_runs_as_it_stands(
    method: str, path: str, document: Json, client: TestClient, check: Check
) -> None:
    """The answer is what is documented: it has no other members, and its media type is named."""
    operation = document["paths"][path][method]
    answer = call(client, method, path, operation)
    if path == "/describe":  # bundles of tests have no readings
        assert 409 == answer.status_code
        return
    assert 200 == answer.status_code, answer.text
    kind = answer.headers["content-type"].partition(";")[0]
    content = operation["responses"]["200"]["content"][kind]
    assert JSON != kind or [] == check(content["schema"], answer.json())


REFUSED = {
    "no image": ("/reconstruct", {}),
    "two kinds of image": ("/classify", {"image": "AA==", "images": ["AA=="]}),
    "an unknown member": ("/classify", {"image": "AA==", "label": 7}),
    "no image in the list": ("/classify", {"images": []}),
    "an empty image": ("/segment", {"image": ""}),
    "a number in the list": ("/classify", {"images": ["AA==", 7]}),
    "more images than the settings allow": ("/classify", {"images": 6 * ["AA=="]}),
    "two images for one": ("/routing", {"images": 2 * ["AA=="]}),
    "one image for two": ("/overlay", {"images": ["AA=="]}),
    "one image, not in a list": ("/overlay", {"image": "AA=="}),
    "no pose": ("/decode", {"label": 7}),
    "pose and poses": ("/decode", {"pose": [0.0], "poses": [[0.0]], "label": 7}),
    "a pose far off": ("/decode", {"pose": [11.0] * 16, "label": 7}),
    "an unknown member beside a pose": ("/decode", {"pose": [0.0] * 16, "label": 7, "dim": 1}),
}


@pytest.mark.parametrize(("path", "body"), REFUSED.values(), ids=REFUSED)
def test_what_the_schema_refuses_the_service_refuses(
    path: str, body: Json, document: Json, client: TestClient, check: Check
) -> None:
    """With a status that is documented."""
    operation = document["paths"][path]["post"]
    answer = call(client, "post", path, operation, json=body)
    schema = operation["requestBody"]["content"][JSON]["schema"]
    assert check(schema, body)
    assert 400 <= answer.status_code < 500
    assert str(answer.status_code) in operation["responses"]


def test_problems_are_documented_by_status(document: Json) -> None:
    """If the service is full or not there, the answer says when to come again."""
    responses = document["paths"]["/classify"]["post"]["responses"]
    expected = [200, 400, 404, 406, 408, 409, 413, 415, 422, 429, 500, 503, 504]
    assert expected == [int(status) for status in responses]
    for status in ("429", "503"):
        answer = resolve(document, responses[status])
        assert {"Retry-After"} == answer["headers"].keys()
    assert {"200", "429", "500"} == document["paths"]["/metrics"]["get"]["responses"].keys()
    assert "400" in document["paths"]["/models/{name}"]["get"]["responses"]  # control characters
