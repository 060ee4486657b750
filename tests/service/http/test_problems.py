from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.pictures import SAMPLES

SEVEN = {"file": (SAMPLES / "7.png").read_bytes()}


def perturb(**query: Any) -> tuple[str, str, dict[str, Any]]:
    """A well-formed request to /perturb but for the query; None leaves a parameter out."""
    query = {"dim": 4, "delta": 0.1, **query}
    params = {name: value for name, value in query.items() if value is not None}
    return "POST", "/perturb", {"params": params, "files": SEVEN}


def post(route: str, **query: Any) -> tuple[str, str, dict[str, Any]]:
    return "POST", route, {"params": query, "files": SEVEN}


PARAMETERS = [
    pytest.param(perturb(dim=16), "dim", id="dim one too high"),
    pytest.param(perturb(dim=""), "dim", id="dim empty"),
    pytest.param(perturb(dim=None), "dim", id="dim missing"),
    pytest.param(perturb(delta="nan"), "delta", id="delta not a number"),
    pytest.param(post("/classify", fit="auot"), "fit", id="fit misspelt"),
    pytest.param(post("/classify", polarity="dark"), "polarity", id="polarity misspelt"),
]
ROUTES = [
    pytest.param(post("/classify", model="emnist"), 404, "unknown-model", id="unknown model"),
    pytest.param(perturb(model="../mnist"), 404, "unknown-model", id="a path for a model"),
    pytest.param(("GET", "/models/emnist", {}), 404, "unknown-model", id="unknown model's page"),
    pytest.param(("GET", "/clasify", {}), 404, "not-found", id="unknown route"),
    pytest.param(("GET", "/classify", {}), 405, "method-not-allowed", id="GET /classify"),
    pytest.param(("PUT", "/perturb", {}), 405, "method-not-allowed", id="PUT /perturb"),
    pytest.param(("POST", "/models", {}), 405, "method-not-allowed", id="POST /models"),
    pytest.param(("DELETE", "/models/mnist", {}), 405, "method-not-allowed", id="DELETE a model"),
]
Request = tuple[str, str, dict[str, Any]]


def problem_of(client: TestClient, request: Request) -> dict[str, Any]:
    """Send the request; the answer has to be a well-formed problem, and the service to live on."""
    method, path, rest = request
    answer = client.request(method, path, **rest)
    problem: dict[str, Any] = answer.json()
    assert "application/problem+json" == answer.headers["content-type"]
    assert answer.headers["X-Request-ID"] == problem["request_id"]
    assert answer.status_code == problem["status"]
    assert problem["title"]
    assert 200 == client.post("/classify", files=SEVEN).status_code
    return problem


@pytest.mark.parametrize(("request_", "parameter"), PARAMETERS)
def test_a_bad_parameter_is_named(request_: Request, parameter: str, client: TestClient) -> None:
    """Missing, unknown, of the wrong type or out of range: a 422 that names the parameter."""
    problem = problem_of(client, request_)
    expected = (422, "urn:capsnet:problem:invalid-parameter", parameter)
    assert expected == (problem["status"], problem["type"], problem["parameter"])
    assert parameter in problem["detail"]


@pytest.mark.parametrize(("request_", "status", "slug"), ROUTES)
def test_what_is_not_there_is_a_problem(
    request_: Request, status: int, slug: str, client: TestClient
) -> None:
    """Models, routes and methods that do not exist have types of their own."""
    problem = problem_of(client, request_)
    assert (status, f"urn:capsnet:problem:{slug}") == (problem["status"], problem["type"])


@pytest.mark.parametrize("asked", ["bytes=soon", "bytes=999999-", "bytes=0-9", "lines=0-9"])
@pytest.mark.parametrize("path", ["/samples/7.png", "/static/icon.svg"])
def test_a_file_is_sent_whole(path: str, asked: str, client: TestClient) -> None:
    """As a server may (RFC 9110, section 14.2), whatever part of it is asked for."""
    answer = client.get(path, headers={"Range": asked})
    assert (200, client.get(path).content) == (answer.status_code, answer.content)


def test_an_unknown_model_is_a_parameter_at_fault(client: TestClient) -> None:
    """The problem names the parameter and the models that there are."""
    problem = problem_of(client, post("/classify", model="emnist"))
    assert "model" == problem["parameter"]
    expected = "'emnist' is not loaded; loaded: blocks, mnist, strokes. Did you mean 'mnist'?"
    assert expected == problem["detail"]


@pytest.mark.parametrize("path", ["/models/", "/classify/", "/livez/", "/static-offline-docs"])
def test_a_slash_too_many_is_another_path(path: str, client: TestClient) -> None:
    """There is no redirect, which would lead wherever the Host header says."""
    answer = client.get(path, headers={"Host": "127.0.0.1:9"}, follow_redirects=False)
    assert (404, None) == (answer.status_code, answer.headers.get("location"))


@pytest.mark.parametrize("route", ["/classify", "/reconstruct"])
def test_fit_none_needs_the_network_s_size(route: str, client: TestClient, photo: bytes) -> None:
    """A picture of another size is refused where nothing may be done to it."""
    request = ("POST", route, {"params": {"fit": "none"}, "files": {"file": photo}})
    problem = problem_of(client, request)
    assert (422, "fit") == (problem["status"], problem["parameter"])
    assert "fit=none needs 28x28 pixels, not 200x120" == problem["detail"]


def test_a_bad_query_is_refused_before_the_body_is_looked_at(client: TestClient) -> None:
    """Of two faults, the problem names that of the query, which needs no picture."""
    request = ("POST", "/perturb", {"params": {"dim": 99, "delta": 0}, "content": b"no picture"})
    assert "dim" == problem_of(client, request)["parameter"]
