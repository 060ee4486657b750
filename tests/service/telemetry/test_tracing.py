from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.pictures import SAMPLES
from service.settings import Settings, SettingsError
from service.telemetry.tracing import telemetry
from tests.serving import serve

SEVEN = {"file": (SAMPLES / "7.png").read_bytes()}
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def exporter() -> Iterator[InMemorySpanExporter]:
    """Keeps what this process traces; OpenTelemetry has one provider for each process."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def traced(
    settings: Settings, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestClient]:
    """The service with traces on, sent nowhere but to the exporter above."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    with serve(settings, otel=True) as client:
        exporter.clear()
        yield client


def spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """By name."""
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_is_a_span_with_its_stages(
    traced: TestClient, exporter: InMemorySpanExporter
) -> None:
    """The stages lie within their request's span, in order."""
    assert 200 == traced.post("/classify", files=SEVEN).status_code
    made = spans(exporter)
    assert {"POST /classify", "preprocess", "queue", "compute"} == made.keys()
    request = made["POST /classify"]
    assert request.attributes is not None
    assert 200 == request.attributes["http.response.status_code"]
    for stage in ("preprocess", "queue", "compute"):
        parent = made[stage].parent
        assert parent is not None
        assert request.get_span_context().span_id == parent.span_id
    starts = [made[stage].start_time or 0 for stage in ("preprocess", "queue", "compute")]
    assert sorted(starts) == starts


def test_the_second_request_of_a_line_is_traced_as_the_first(
    traced: TestClient, exporter: InMemorySpanExporter
) -> None:
    """Its span bears the name of its route, which FastAPI gives it."""
    for _ in range(2):
        traced.post("/classify", files=SEVEN)
    names = [span.name for span in exporter.get_finished_spans()]
    assert 2 == names.count("POST /classify")


def test_a_caller_s_trace_goes_on(traced: TestClient, exporter: InMemorySpanExporter) -> None:
    """Who sends a trace finds the service in it."""
    traced.post("/classify", files=SEVEN, headers={"traceparent": CALLER})
    context = spans(exporter)["POST /classify"].get_span_context()
    assert CALLER.split("-")[1] == f"{context.trace_id:032x}"


def test_probes_are_not_traced(traced: TestClient, exporter: InMemorySpanExporter) -> None:
    """They come every few seconds and tell nothing."""
    for probe in ("/livez", "/readyz", "/metrics"):
        assert 200 == traced.get(probe).status_code
    assert {} == spans(exporter)


def test_nothing_is_traced_by_default(client: TestClient, exporter: InMemorySpanExporter) -> None:
    """Without the setting there are no spans, even where there is a provider."""
    exporter.clear()
    assert 200 == client.post("/classify", files=SEVEN).status_code
    assert {} == spans(exporter)


def test_traces_without_a_collector_are_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would go nowhere, unnoticed."""
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    with pytest.raises(SettingsError, match="where to send traces: OTEL_EXPORTER_OTLP_ENDPOINT"):
        telemetry(settings.model_copy(update={"otel": True}))


def test_traces_without_the_extra_are_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match=r'pip install .*--editable "\.\[otel\]"'):
        telemetry(settings.model_copy(update={"otel": True}))
