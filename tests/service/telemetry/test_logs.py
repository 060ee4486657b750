from __future__ import annotations

import logging

import pytest
from fastapi.testclient import TestClient

from service.telemetry import logs


def test_words_of_others_stay_in_their_line() -> None:
    """A bundle's error may hold line breaks and escapes of its author."""
    record = logging.LogRecord("a", logging.ERROR, "", 0, "%s", ("x\nINFO forged\x1b[2J",), None)
    assert logs.TextFormatter().format(record).endswith(r" a: x\nINFO forged\x1b[2J")


def test_what_clients_invent_has_one_label_and_is_not_logged(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Paths, methods and networks: else each request would add a time series for good."""

    def series() -> set[str]:
        return {line.rpartition(" ")[0] for line in client.get("/metrics").text.splitlines()}

    def invent(name: str) -> None:
        client.request(f"X{name}".upper(), "/models")
        client.get(f"/{name}%0aforged/{name}")
        client.get(f"/static/{name}")
        client.post(f"/v2/models/{name}/infer", content=b"{}")
        client.post("/classify", params={"model": name}, content=b"x")

    caplog.set_level(logging.INFO, "service.access")
    invent("first")
    series()
    known = series()
    invent("second")
    assert set() == series() - known
    lines = [one.getMessage() for one in caplog.records if one.name.startswith("service")]
    assert lines
    assert not [line for line in lines if "second" in line or "forged" in line]


def test_every_answer_is_logged_without_the_picture(
    client: TestClient, digits: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """One event with route, status and times; probes leave none."""
    with caplog.at_level(logging.INFO, logger="service.access"):
        client.get("/livez")
        client.post("/classify", files={"file": digits[3]})
    (record,) = [one for one in caplog.records if one.name == "service.access"]
    fields = record.__dict__["fields"]
    assert ("/classify", 200) == (fields["route"], fields["status"])
    assert {"preprocess_ms", "queue_ms", "compute_ms", "total_ms"} < fields.keys()


def test_server_timing_tells_where_the_time_went(client: TestClient, digits: list[bytes]) -> None:
    """The stages are part of the total."""
    answer = client.post("/classify", files={"file": digits[3]})
    entries = dict(entry.split(";dur=") for entry in answer.headers["Server-Timing"].split(", "))
    assert {"preprocess", "queue", "compute", "total"} == entries.keys()
    total = float(entries.pop("total"))
    assert sum(map(float, entries.values())) <= total + 0.1
