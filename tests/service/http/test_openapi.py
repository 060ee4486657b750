from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

Json = dict[str, Any]


@pytest.fixture(scope="module")
def document(client: TestClient) -> Json:
    found: Json = client.get("/openapi.json").json()
    return found


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def examples(operation: Json, place: str) -> dict[str, Any]:
    """The example of each parameter that has one or needs one; a KeyError if it is missing."""
    return {
        parameter["name"]: parameter["schema"]["examples"][0]
        for parameter in operation.get("parameters", ())
        if parameter["in"] == place and (parameter["required"] or "examples" in parameter["schema"])
    }


def test_every_example_runs_as_it_stands(document: Json, client: TestClient) -> None:
    """Each operation, called with the examples that the document gives, answers 200."""
    statuses = {}
    for method, path, operation in operations(document):
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        answer = client.request(
            method,
            path.format(**examples(operation, "path")),
            params=examples(operation, "query"),
            json=body.get("example"),
        )
        statuses[f"{method} {path}"] = answer.status_code
    assert dict.fromkeys(statuses, 200) == statuses


def test_all_routes_are_documented(document: Json) -> None:
    """The document names the routes of the API."""
    expected = {"/classify", "/reconstruct", "/perturb", "/models", "/models/{name}"}
    expected |= {"/decode", "/perturb/sweep", "/routing", "/equivariance", "/segment", "/overlay"}
    assert expected | {"/livez", "/readyz"} <= document["paths"].keys()


@pytest.mark.parametrize(
    "route", ["/classify", "/reconstruct", "/perturb", "/routing", "/equivariance", "/segment"]
)
def test_all_ways_of_sending_are_documented(route: str, document: Json) -> None:
    """JSON, a form and a raw picture."""
    content = document["paths"][route]["post"]["requestBody"]["content"]
    assert {"application/json", "multipart/form-data", "image/*"} == content.keys()


def test_every_operation_documents_its_problems(document: Json) -> None:
    """Each operation says what its problems look like."""
    for method, path, operation in operations(document):
        content = operation["responses"]["4XX"]["content"]
        assert {"application/problem+json"} == content.keys(), f"{method} {path}"


@pytest.mark.parametrize(
    ("route", "name"),
    [
        ("/reconstruct", "ReconstructAnswer"),
        ("/perturb", "PerturbAnswer"),
        ("/perturb/sweep", "SweepAnswer"),
        ("/routing", "RoutingAnswer"),
        ("/equivariance", "EquivarianceAnswer"),
        ("/segment", "SegmentAnswer"),
    ],
)
def test_an_answer_has_the_documented_members(
    route: str, name: str, document: Json, client: TestClient
) -> None:
    """No required member is missing from an answer, nor is there one that is not documented."""
    schemas, operation = document["components"]["schemas"], document["paths"][route]["post"]
    example = operation["requestBody"]["content"]["application/json"]["example"]
    answer = client.post(route, params=examples(operation, "query"), json=example).json()
    assert set(schemas[name]["required"]) == answer.keys()
    assert set(schemas["FitReport"]["required"]) == answer["fit"].keys()


def test_classify_s_answer_has_the_documented_members(document: Json, client: TestClient) -> None:
    """The fit's box is there even where it is null; poses are there on demand alone."""
    schemas = document["components"]["schemas"]
    operation = document["paths"]["/classify"]["post"]
    example = operation["requestBody"]["content"]["application/json"]["example"]
    (prediction,) = client.post("/classify", json=example).json()["predictions"]
    assert set(schemas["Prediction"]["required"]) == prediction.keys()
    assert set(schemas["FitReport"]["required"]) == prediction["fit"].keys()


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
