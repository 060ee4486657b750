from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

PNG = {"Accept": "image/png"}


@pytest.mark.parametrize(
    "path",
    [
        "/models/mnist?name=typo",
        "/models?name=typo",
        "/v1/models?name=typo",
        "/models/mnist/samples?name=typo",
    ],
)
def test_what_is_no_parameter_of_a_query_is_refused(path: str, client: TestClient) -> None:
    """Names of the path's parameters too: their values would be ignored."""
    answer = client.get(path)
    assert (422, "name") == (answer.status_code, answer.json()["parameter"])
    assert "unknown parameter name" == answer.json()["detail"]


def test_every_route_is_under_v1_too(client: TestClient, digits: list[bytes]) -> None:
    """The answers are the same, and the document names each route once."""
    files = {"file": digits[7]}
    assert (
        client.post("/classify", files=files).json()
        == client.post("/v1/classify", files=files).json()
    )
    assert client.get("/models").json() == client.get("/v1/models").json()
    assert 200 == client.head("/v1/livez").status_code
    assert not [path for path in client.get("/openapi.json").json()["paths"] if "v1" in path]


@pytest.mark.parametrize("path", ["/reconstruct", "/routing", "/sweep?dims=3"])
def test_a_png_says_which_model_drew_it(path: str, client: TestClient, digits: list[bytes]) -> None:
    """As the JSON does, in which the version is the one of `GET /models`."""
    answer = client.post(path, files={"file": digits[7]}, headers=PNG)
    model = client.get("/models/mnist").json()
    assert f"mnist; version={model['version']}" == answer.headers["x-model"]


@pytest.mark.parametrize("headers", [PNG, {}], ids=["PNG", "JSON"])
def test_caches_are_told_what_the_answer_depends_on(
    headers: dict[str, str], client: TestClient, digits: list[bytes]
) -> None:
    """One that keeps the PNG must not give it to those who want JSON."""
    answer = client.post("/reconstruct", files={"file": digits[7]}, headers=headers)
    assert "Accept" == answer.headers["vary"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/overlay", "GET, HEAD, POST"),
        ("DELETE", "/classify", "POST"),
        ("POST", "/models", "GET, HEAD"),
        ("PATCH", "/v1/models/mnist", "GET, HEAD"),
        ("POST", "/", "GET, HEAD"),
        ("POST", "/static/main.js", "GET, HEAD"),
        ("PUT", "/v1/static/main.js", "GET, HEAD"),
        ("DELETE", "/static-offline-docs/swagger-ui.css", "GET, HEAD"),
        ("POST", "/docs", "GET, HEAD"),
        ("POST", "/openapi.json", "GET, HEAD"),
        ("GET", "/classify", "POST"),
        ("GET", "/v1/classify", "POST"),
        ("PUT", "/v1/overlay", "GET, HEAD, POST"),
    ],
)
def test_a_wrong_method_names_all_right_ones(
    method: str, path: str, allowed: str, client: TestClient
) -> None:
    """Of every route of the path."""
    answer = client.request(method, path)
    assert (405, allowed) == (answer.status_code, answer.headers["allow"])
