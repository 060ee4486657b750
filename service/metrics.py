"""What Prometheus reads at `/metrics`. Every metric is described in docs/operations.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    generate_latest,
)

from service.waiting import BatchReport

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The service's own registry; nothing is global.

    What is called with labels to give one of a metric's children remembers it: prometheus_client
    looks each up anew, behind a lock.
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()

        def counter(name: str, text: str, labels: Sequence[str]) -> Callable[..., Counter]:
            return cache(Counter(name, text, labels, registry=registry).labels)

        def histogram(
            name: str, text: str, labels: Sequence[str], buckets: Sequence[float] = _SECONDS
        ) -> Callable[..., Histogram]:
            metric = Histogram(name, text, labels, buckets=buckets, registry=registry)
            return cache(metric.labels)

        self._requests = counter(
            "capsnet_requests",
            "Requests that were answered, or whose client left (499).",
            ("route", "status"),
        )
        self._seconds = histogram(
            "capsnet_request_seconds",
            "From request to answer, or to the client's leaving.",
            ("route",),
        )
        self._stages = histogram(
            "capsnet_stage_seconds",
            "Time of one request in a stage: preprocess, queue or compute.",
            ("stage",),
        )
        graphs = ("model", "graph")
        self._batch_seconds = histogram("capsnet_batch_seconds", "One inference.", graphs)
        self._batch_rows = histogram(
            "capsnet_batch_rows", "Rows of one inference.", graphs, buckets=_ROWS
        )
        self._padding = counter(
            "capsnet_padding_rows", "Rows that were computed to fill batches up.", graphs
        )
        self._refusals = counter(
            "capsnet_rejections", "Refused requests, by the problem's slug.", ("reason",)
        )
        self._waiting = Gauge(
            "capsnet_waiting_rows", "Rows that wait for a batch.", registry=registry
        )
        self._provider = Info("capsnet_provider", "What runs the networks.", registry=registry)

    def watch(self, *, waiting_rows: Callable[[], int], provider: str, models: str) -> None:
        """Say where the gauges read."""
        self._waiting.set_function(waiting_rows)
        self._provider.info({"provider": provider, "models": models})

    def note_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request. `route` is the path's template, never what the client typed."""
        self._requests(route, status).inc()
        self._seconds(route).observe(seconds)

    def note_stage(self, stage: str, seconds: float) -> None:
        """Count one request's time in a stage."""
        self._stages(stage).observe(seconds)

    def note_rejection(self, reason: str) -> None:
        """Count a request that was not taken or not answered in time."""
        self._refusals(reason).inc()

    def note_batch(self, report: BatchReport) -> None:
        """Count an inference. Called on the inference thread."""
        model, graph = report.key
        self._batch_rows(model, graph).observe(report.rows)
        self._batch_seconds(model, graph).observe(report.seconds)
        self._padding(model, graph).inc(report.padding)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
