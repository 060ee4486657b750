from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from service.telemetry import logs
from service.telemetry.logs import MAX_LINES, JsonFormatter, Lines


def format_record(message: str, **more: object) -> dict[str, object]:
    record = logging.makeLogRecord({"name": "service", "levelname": "INFO", "msg": message, **more})
    parsed: dict[str, object] = json.loads(JsonFormatter().format(record))
    return parsed


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


@pytest.fixture
def restored_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What `configure` changes is put back."""
    root, handlers, level = logging.root, logging.root.handlers[:], logging.root.level
    for name in ("_srcfile", "logThreads", "logProcesses", "logMultiprocessing"):
        monkeypatch.setattr(logging, name, getattr(logging, name))
    monkeypatch.setattr(logging, "logAsyncioTasks", True, raising=False)
    with warnings.catch_warnings():
        yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    logs.ACCESS.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("restored_logging")
def test_warnings_are_events_and_those_of_pictures_are_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A picture with a broken tag would have a line of no format for each of them."""
    logs.configure("json")
    warnings.simplefilter("always", DeprecationWarning)
    for message, category, module in (
        ("something is old", DeprecationWarning, "somewhere"),
        ("Corrupt EXIF data", UserWarning, "PIL.TiffImagePlugin"),
    ):
        warnings.warn_explicit(message, category, "a.py", 1, module=module)
    logging.root.handlers[0].flush()
    (line,) = capsys.readouterr().err.splitlines()
    assert "something is old" in json.loads(line)["message"]


def test_nobody_waits_for_who_reads_the_log() -> None:
    """Lines that find no room are dropped and counted; what waits is written when it is read."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading) as log:
        handler, record = Lines(stream), logging.makeLogRecord({"msg": "x" * 99})
        for _ in range(sent := 2 * MAX_LINES + 2_000):
            handler.handle(record)
        handler.flush()
        written = dropped = 0
        while written + dropped < sent:
            number, _, rest = log.readline().partition(" lines were dropped: ")
            written, dropped = (written, dropped + int(number)) if rest else (written + 1, dropped)
        assert 0 < dropped <= MAX_LINES + 2_000
