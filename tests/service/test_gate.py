from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from service import remembered
from service.remembered import RememberedLines

PNG = {"Content-Type": "image/png"}
Reading = Callable[[], AbstractContextManager[None]]
COUNTED = 'capsnet_requests_total{route="/reconstruct",status="200"}'


@pytest.fixture
def fastapi_reads(monkeypatch: pytest.MonkeyPatch) -> Reading:
    """Within what it gives, FastAPI reads every request, whatever came before."""

    @contextmanager
    def reading() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(RememberedLines, "find", lambda *_: None)
            yield

    return reading


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
    path: str, client: TestClient, digits: list[bytes], fastapi_reads: Reading
) -> None:
    """The answer to the second request is the first one's, byte by byte."""
    with fastapi_reads():
        first = client.post(path, content=digits[0], headers=PNG)
    second = client.post(path, content=digits[0], headers=PNG)
    assert 200 == first.status_code
    assert first.content == second.content
    assert first.headers["content-type"] == second.headers["content-type"]


def test_queries_do_not_mix(client: TestClient, digits: list[bytes]) -> None:
    """Each query string has its own meaning, in any order."""
    paths = ["/perturb?dim=3&delta=0.1", "/perturb?dim=4&delta=0.1", "/perturb?dim=3&delta=0.2"]
    answers = [client.post(path, content=digits[0], headers=PNG).json() for path in 2 * paths]
    assert 2 * [(3, 0.1), (4, 0.1), (3, 0.2)] == [(one["dim"], one["delta"]) for one in answers]


def test_a_bad_query_is_refused_every_time(client: TestClient, digits: list[bytes]) -> None:
    """What was refused is not remembered, whether by FastAPI or by the handler."""
    before = len(client.app.state.lines)
    for path, status in (("/classify?colour=red", 422), ("/classify?model=nonsense", 404)):
        for _ in range(3):
            assert status == client.post(path, content=digits[0], headers=PNG).status_code
    assert before == len(client.app.state.lines)


def test_a_line_that_came_before_does_not_go_through_fastapi(
    client: TestClient, digits: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its route and query are known."""
    client.post("/classify?poses=true", content=digits[0], headers=PNG)
    monkeypatch.setattr(APIRoute, "handle", None)  # whoever goes there fails
    answer = client.post("/classify?poses=true", content=digits[0], headers=PNG)
    assert 200 == answer.status_code
    assert 16 == len(answer.json()["predictions"][0]["poses"][0])


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"\x89PNG\r\n\x1a\n", {}, 422),
        (b"", {}, 400),
        (None, {"Accept": "image/png"}, 406),
        (None, {"X-Request-Timeout": "soon"}, 422),
        (None, {"X-Request-Timeout": "1e-9"}, 504),
    ],
)
def test_what_goes_wrong_is_answered_the_same_the_second_time(
    client: TestClient,
    digits: list[bytes],
    fastapi_reads: Reading,
    *,
    body: bytes | None,
    headers: dict[str, str],
    status: int,
) -> None:
    """A remembered line changes nothing about the rest of a request."""
    content = digits[0] if body is None else body
    sent = PNG | headers | {"X-Request-ID": "the-same"}
    client.post("/classify?fit=stretch", content=digits[0], headers=PNG)
    with fastapi_reads():
        before = client.post("/classify?fit=stretch", content=content, headers=sent)
    after = client.post("/classify?fit=stretch", content=content, headers=sent)
    assert status == before.status_code == after.status_code
    assert before.json() == after.json()


def test_requests_are_counted_by_route_however_they_came_there(
    client: TestClient, digits: list[bytes]
) -> None:
    """The second goes past FastAPI."""
    counts = []
    for _ in range(3):
        client.post("/reconstruct?target=3", content=digits[0], headers=PNG)
        lines = client.get("/metrics").text.splitlines()
        (count,) = (line for line in lines if line.startswith(COUNTED))
        counts.append(float(count.removeprefix(COUNTED)))
    assert [counts[0], counts[0] + 1, counts[0] + 2] == counts


def test_only_so_many_lines_are_remembered(
    client: TestClient, digits: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients cannot fill the memory with queries, and forgotten ones are read again."""
    monkeypatch.setattr(remembered, "MAX_LINES", 2)
    for _ in range(2):
        for dim in range(5):
            path = f"/perturb?dim={dim}&delta=0.1"
            answer = client.post(path, content=digits[0], headers=PNG)
            assert dim == answer.json()["dim"]
    assert len(client.app.state.lines) <= 2


def test_long_lines_are_not_remembered(client: TestClient, digits: list[bytes]) -> None:
    """They would take more memory than their reading takes time."""
    before = len(client.app.state.lines)
    path = "/perturb?dim=3&delta=0." + 256 * "1"
    assert 200 == client.post(path, content=digits[0], headers=PNG).status_code
    assert before == len(client.app.state.lines)
