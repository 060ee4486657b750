from __future__ import annotations

import pytest
from fastapi.testclient import TestClient


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
