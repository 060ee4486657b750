from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from service import remembered
from service.routes import router

PNG = {"Content-Type": "image/png"}


@pytest.mark.parametrize(
    "path",
    [
        "/classify",
        "/classify?poses=true&fit=none",
        "/reconstruct?target=3",
        "/perturb?dim=3&delta=0.1",
        "/perturb/sweep?dims=3",
        "/routing?detail=false",
        "/equivariance?transform=turn&steps=3",
    ],
)
def test_a_query_that_was_read_before_means_the_same(
    path: str, client: TestClient, digits: list[bytes]
) -> None:
    """The answer to the second request is the first one's, byte by byte."""
    first, second = (client.post(path, content=digits[0], headers=PNG) for _ in range(2))
    assert 200 == first.status_code
    assert first.content == second.content
    assert first.headers["content-type"] == second.headers["content-type"]


def test_queries_do_not_mix(client: TestClient, digits: list[bytes]) -> None:
    """Each query string has its own meaning, in any order."""
    paths = ["/perturb?dim=3&delta=0.1", "/perturb?dim=4&delta=0.1", "/perturb?dim=3&delta=0.2"]
    answers = [client.post(path, content=digits[0], headers=PNG).json() for path in 2 * paths]
    assert 2 * [(3, 0.1), (4, 0.1), (3, 0.2)] == [(one["dim"], one["delta"]) for one in answers]


def test_a_bad_query_is_refused_every_time(client: TestClient, digits: list[bytes]) -> None:
    """What was refused is not remembered."""
    path = "/classify?colour=red"
    statuses = [client.post(path, content=digits[0], headers=PNG).status_code for _ in range(3)]
    assert [422, 422, 422] == statuses


def test_only_so_many_queries_are_remembered(
    client: TestClient, digits: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients cannot fill the memory with queries, and forgotten ones are read again."""
    monkeypatch.setattr(remembered, "MAX_QUERIES", 2)
    for _ in range(2):
        for dim in range(5):
            path = f"/perturb?dim={dim}&delta=0.1"
            answer = client.post(path, content=digits[0], headers=PNG)
            assert dim == answer.json()["dim"]
    (route,) = (one for one in router.routes if one.path == "/perturb")
    assert len(route._queries) <= 2
