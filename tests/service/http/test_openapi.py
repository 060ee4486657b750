from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator
from pydantic import SecretStr

from service.api.routes import api_routes
from service.app import create_app
from service.http.keys import Access
from service.http.negotiation import JSON, PNG
from service.pictures import SAMPLES
from service.settings import Settings
from tests.answers import differences
from tools.examples import ADMIN_KEY, Json, call, no_reload, operations

WITH_ADMIN_KEY = Settings(admin_keys=(SecretStr(ADMIN_KEY),))
ROUTES = [
    (method.lower(), route.path)
    for route in api_routes(Access(WITH_ADMIN_KEY), max_pictures=1)
    if route.include_in_schema
    for method in route.methods
]
IMAGE_ROUTES = [
    "/classify",
    "/reconstruct",
    "/perturb",
    "/sweep",
    "/routing",
    "/equivariance",
    "/segment",
]
SAMPLE = (SAMPLES / "3.png").read_bytes()
each_operation = pytest.mark.parametrize(("method", "path"), ROUTES, ids=map(" ".join, ROUTES))
Check = Callable[[Json, Any], list[str]]


@pytest.fixture(scope="module")
def client(client: TestClient, settings: Settings) -> TestClient:
    """The service with all of its routes; the bundles are those of the other."""
    assert isinstance(client.app, FastAPI)
    app = create_app(settings.model_copy(update={"admin_keys": WITH_ADMIN_KEY.admin_keys}))
    app.state.loaded, app.state.reload = client.app.state.loaded, partial(no_reload, app)
    app.state.decode_pools, app.state.drawing = (
        client.app.state.decode_pools,
        client.app.state.drawing,
    )
    return TestClient(app, base_url="http://localhost")


@pytest.fixture(scope="module")
def document(client: TestClient) -> Json:
    found: Json = client.get("/openapi.json").json()
    return found


def test_the_document_is_serialised_once(client: TestClient) -> None:
    """Who asks again and again costs the service a copy."""
    assert isinstance(client.app, FastAPI)
    first = client.app.state.openapi("")
    assert first == client.get("/openapi.json").content
    assert first is client.app.state.openapi("")


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


def test_every_operation_is_in_a_group_and_named(document: Json) -> None:
    """So that the docs read like a table of contents."""
    groups = {tag["name"]: 0 for tag in document["tags"] if tag["description"]}
    for _, path, operation in operations(document):
        (group,) = operation["tags"]
        groups[group] += 1
        assert 0 < len(operation["summary"]) <= 60, path
        assert not operation["summary"].endswith("."), path
    assert all(groups.values())
    names = Counter(operation["operationId"] for _, _, operation in operations(document))
    assert {1} == set(names.values())


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


@pytest.mark.parametrize("path", IMAGE_ROUTES)
def test_all_ways_of_sending_work(path: str, document: Json, client: TestClient) -> None:
    """JSON, a form and a raw image: with the one at the address that is given as an example.

    Rows of a request may be computed in other batches, which changes the last digits.
    """
    operation = document["paths"][path]["post"]
    content = operation["requestBody"]["content"]
    assert {JSON, "multipart/form-data", "image/*", "application/octet-stream"} == content.keys()
    image = client.get(content["image/*"]["examples"]["sample"]["externalValue"]).content
    raw = ({"Content-Type": kind} for kind in (PNG, "application/octet-stream"))
    bodies = [{}, {"files": {"file": image}}, *({"content": image, "headers": one} for one in raw)]
    first, *others = (call(client, "post", path, operation, **body).json() for body in bodies)
    assert [] == [fault for other in others for fault in differences(first, other)]


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


def test_a_list_may_hold_images_that_cannot_be_read(
    document: Json, client: TestClient, check: Check
) -> None:
    """Each gets its problem in the answer."""
    operation = document["paths"]["/classify"]["post"]
    body = {"images": ["", "AA=="]}
    answer = call(client, "post", "/classify", operation, json=body)
    assert [] == check(operation["requestBody"]["content"][JSON]["schema"], body)
    assert 200 == answer.status_code


@pytest.mark.parametrize(
    ("path", "count"),
    [("/classify", 1), ("/classify", 5), ("/classify", 6), ("/segment", 2), ("/overlay", 1)],
)
def test_a_form_takes_as_many_files_as_its_schema(
    path: str, count: int, *, document: Json, client: TestClient, check: Check
) -> None:
    """An array where there may be several."""
    schema = form_schema(document, path)
    several = schema["properties"]["file"]["type"] == "array" or count > 1
    answer = client.post(path, files=[("file", SAMPLE)] * count)
    faults = check(schema, {"file": count * ["3.png"] if several else "3.png"})
    assert (200 == answer.status_code) == (not faults), answer.text


@pytest.mark.parametrize("path", [*IMAGE_ROUTES, "/overlay"])
@pytest.mark.parametrize("fields", [["other"], ["file", "file", "other"], []])
def test_a_form_takes_no_other_fields_than_its_schema(
    path: str, fields: list[str], document: Json, client: TestClient, check: Check
) -> None:
    """Nor does either take one without a file."""
    required = {"dim": 1, "delta": 0} if path == "/perturb" else {}
    files = [(name, b"") for name in fields] or None
    headers = {} if files else {"Content-Type": "multipart/form-data; boundary=x"}
    content = None if files else b"--x--\r\n"
    answer = client.post(path, params=required, files=files, content=content, headers=headers)
    assert 400 == answer.status_code, answer.text
    assert check(form_schema(document, path), {name: 2 * [""] for name in fields})


def form_schema(document: Json, path: str) -> Json:
    content = document["paths"][path]["post"]["requestBody"]["content"]
    found: Json = content["multipart/form-data"]["schema"]
    return found


def with_parameter(operation: Json, name: str, value: Any) -> Json:
    """An operation with one example for a parameter in its query."""
    one = {"name": name, "in": "query", "required": True, "schema": {"examples": [value]}}
    others = [other for other in operation["parameters"] if other["name"] != name]
    return {**operation, "parameters": [*others, one]}


@each_operation
def test_parameters_have_the_documented_limits(
    method: str, path: str, document: Json, client: TestClient
) -> None:
    """What is past one is refused for it; what is at one may fail for the model's sake alone."""
    operation = document["paths"][path][method]
    expected, actual = {}, {}
    for parameter in operation.get("parameters", ()):
        if parameter["in"] != "query":
            continue
        name, schema = parameter["name"], parameter["schema"]
        schema = next((one for _, one in numbers(schema, "") if one["type"] != "array"), schema)
        step = 1 if schema.get("type") == "integer" else 1e-7
        limits = {"minimum": -step, "maximum": step}
        values = {schema[limit]: False for limit in limits if limit in schema}
        values |= {schema[limit] + limits[limit]: True for limit in limits if limit in schema}
        if schema.get("type") != "string" or "enum" in schema:
            values["nonsense"] = True
        for value, refused in values.items():
            answer = call(client, method, path, with_parameter(operation, name, value))
            expected[name, value] = refused
            actual[name, value] = answer.status_code == 422 and "should be" in answer.text
    assert expected == actual


def numbers(schema: Any, where: str) -> Iterator[tuple[str, Json]]:
    """Every number and every list of a schema, and where it is."""
    if schema.get("type") in ("integer", "number", "array"):
        yield where, schema
    for one in [*schema.get("anyOf", ()), *filter(None, [schema.get("items")])]:
        yield from numbers(one, where)


def test_every_number_of_a_query_is_bounded(document: Json) -> None:
    """Also those in lists, and the lists: no request costs more than the largest one."""
    bounds = {"array": {"maxItems"}, "integer": {"minimum", "maximum"}}
    found = [
        (f"{path} {parameter['name']}", one)
        for path, operation in [(path, one) for _, path, one in operations(document)]
        for parameter in operation.get("parameters", ())
        if parameter["in"] != "header"
        for _, one in numbers(parameter["schema"], path)
    ]
    assert len(found) > 20
    needed = [(where, one, bounds.get(one["type"], bounds["integer"])) for where, one in found]
    assert [] == [where for where, one, names in needed if not names <= one.keys()]


@pytest.mark.parametrize("count", [11, 10**9, "9" * 400])
def test_a_query_out_of_bounds_keeps_nobody_out(count: Any, client: TestClient) -> None:
    """It is refused before it is admitted, and the next request is answered."""
    answer = client.post("/segment", params={"count": count}, files={"file": SAMPLE})
    assert (422, "count") == (answer.status_code, answer.json()["parameter"])
    assert 0 == client.app.state.admission.waiting  # type: ignore[attr-defined]
    assert 200 == client.post("/classify", files={"file": SAMPLE}).status_code


@each_operation
def test_a_parameter_that_is_not_documented_is_refused(
    method: str, path: str, document: Json, client: TestClient
) -> None:
    """Where there are any."""
    operation = document["paths"][path][method]
    if [one for one in operation.get("parameters", ()) if one["in"] != "header"]:
        answer = call(client, method, path, with_parameter(operation, "modle", "mnist"))
        assert (422, "modle") == (answer.status_code, answer.json()["parameter"])


@pytest.mark.parametrize("prefix", ["", "/v1"])
@each_operation
def test_a_wrong_method_is_told_the_documented_ones(
    method: str, path: str, prefix: str, document: Json, client: TestClient
) -> None:
    """HEAD where GET is; of each path, all of its operations."""
    del method
    methods = {one.upper() for one in document["paths"][path]}
    methods |= {"HEAD"} if "GET" in methods else set()
    methods |= {"GET", "HEAD"} if path == "/models/reload" else set()  # it is /models/{name} too
    address = prefix + path.format(name="mnist", label=7, file="7.png")
    answer = client.put(address, headers={"X-API-Key": ADMIN_KEY})
    assert (405, ", ".join(sorted(methods))) == (answer.status_code, answer.headers["allow"])


def test_problems_are_documented_by_status(document: Json) -> None:
    """If the service is full or not there, the answer says when to come again."""
    responses = document["paths"]["/classify"]["post"]["responses"]
    expected = [200, 400, 404, 406, 408, 409, 413, 415, 422, 429, 500, 503, 504]
    assert expected == [int(status) for status in responses]
    for status in ("429", "503"):
        answer = resolve(document, responses[status])
        assert {"Retry-After"} == answer["headers"].keys()
    assert {"200", "500"} == document["paths"]["/metrics"]["get"]["responses"].keys()
    assert "400" in document["paths"]["/models/{name}"]["get"]["responses"]  # control characters


def test_the_docs_page_needs_no_other_host(client: TestClient) -> None:
    """Nothing is loaded from elsewhere, so the page works without the internet."""
    assert [] == re.findall(r"https?://[^\s\"']+", client.get("/docs").text)


def test_the_docs_page_s_assets_are_served(client: TestClient) -> None:
    """Script, style and icon that the page names are there."""
    assets = re.findall(r'(?:src|href)="([^"]+)"', client.get("/docs").text)
    assert {".js", ".css", ".png"} == {asset[asset.rindex(".") :] for asset in assets}
    assert dict.fromkeys(assets, 200) == {
        asset: client.get(asset).status_code for asset in assets if asset.startswith("/")
    }
