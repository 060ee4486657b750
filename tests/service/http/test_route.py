from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from service.errors import NotAcceptable
from service.http.request import JSON, PNG
from service.http.route import choose_media_type

DRAWN = {"Accept": "image/png"}


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
    answer = client.post(path, files={"file": digits[7]}, headers=DRAWN)
    model = client.get("/models/mnist").json()
    assert f"mnist; version={model['version']}" == answer.headers["x-model"]


@pytest.mark.parametrize("headers", [DRAWN, {}], ids=["PNG", "JSON"])
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


@pytest.mark.parametrize("route", ["/", "/livez", "/readyz", "/models", "/samples/4.png", "/docs"])
def test_head_is_get_without_a_body(route: str, client: TestClient) -> None:
    """Status, type and length are those of the answer to GET."""
    expected, actual = client.get(route), client.head(route)
    assert b"" == actual.content
    for name in ("content-type", "content-length"):
        assert expected.headers[name] == actual.headers[name]
    assert expected.status_code == actual.status_code == 200


@pytest.mark.parametrize(("route", "status"), [("/nowhere", 404), ("/classify", 405)])
def test_head_fails_as_get_does(route: str, status: int, client: TestClient) -> None:
    """Where GET does."""
    answer = client.head(route)
    assert (status, b"") == (answer.status_code, answer.content)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param("", JSON, id="empty header"),
        pytest.param("*/*", JSON, id="anything"),
        pytest.param("image/png", PNG, id="one type"),
        pytest.param("IMAGE/PNG", PNG, id="in capitals"),
        pytest.param("image/png;level=1", PNG, id="with another parameter"),
        pytest.param("image/*", PNG, id="any image"),
        pytest.param("image/png, application/json", JSON, id="a tie goes to the default"),
        # The higher quality is chosen.
        pytest.param("image/png;q=0.5, application/json;q=0.6", JSON, id="against each other"),
        pytest.param("image/png ; q = 1.000 , application/json;q=0.999", PNG, id="with spaces"),
        pytest.param("application/json;q=0, */*", PNG, id="zero excludes"),
        pytest.param(
            "image/png;q=0.1, application/json;q=0.5, image/png;q=0.9", PNG, id="the last of a type"
        ),
        pytest.param(
            "image/png;q=0.9, application/json;q=0.5, image/png;q=0.1", PNG, id="the first"
        ),
        # A range that names the type outweighs a wildcard, whatever their order and quality.
        pytest.param("*/*;q=1, application/json;q=0.2", PNG, id="type before anything"),
        pytest.param("image/*;q=0.9, image/png;q=0.1, application/json;q=0.5", JSON, id="subtype"),
        pytest.param("*/*;q=0.9, image/*;q=0.1", JSON, id="kind before anything"),
        # A type whose quality cannot be read is not chosen, and nothing fails.
        *(
            (f"image/png;q={quality}, application/json;q=0.1", JSON)
            for quality in ("", "high", "nan", "inf", "-1", "1.1", "2", "0,5", "1e-1")
        ),
    ],
)
def test_what_is_accepted_is_chosen(accept: str, expected: str) -> None:
    """The best offer that the header covers is chosen; JSON where it says nothing."""
    assert expected == choose_media_type(accept, (JSON, PNG))


@pytest.mark.parametrize(
    "accept",
    ["text/html", "image/jpeg", "text/*", "*/*;q=0", "application/json;q=0, image/*;q=0.0"],
)
def test_nothing_acceptable_is_refused(accept: str) -> None:
    """The problem names what there is and what was asked for."""
    with pytest.raises(NotAcceptable, match=r"application/json or image/png, not with") as refusal:
        choose_media_type(accept, (JSON, PNG))
    assert accept in refusal.value.detail
