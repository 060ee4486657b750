"""The metrics at `/metrics`. Every one is described in docs/reference/metrics.md."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    values,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from service.telemetry import FOLDER_VARIABLE

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_FILES = ("counter", "gauge_livemax", "gauge_livesum", "histogram")
"""The files' prefixes that prometheus_client gives to each process."""
_FILE_BYTES = 1 << 20
"""The size of the files that prometheus_client creates."""


class Metrics(Collector):
    """A registry of its own or, where workers share a folder, the sum of all workers'.

    Args:
        count_workers: gives the number of workers in each state, if there is a supervisor.
    """

    def __init__(self, count_workers: Callable[[], Mapping[str, int]] | None = None) -> None:
        self._count_workers = count_workers or dict
        own = CollectorRegistry()
        self._shown = CollectorRegistry() if count_workers else own
        if count_workers:
            MultiProcessCollector(self._shown)  # type: ignore[no-untyped-call]
        self._shown.register(self)
        counter = partial(Counter, registry=own)
        histogram = partial(Histogram, registry=own)
        total = partial(Gauge, multiprocess_mode="livesum", registry=own)
        info = partial(Gauge, multiprocess_mode="livemax", registry=own)
        graph, route = ("model", "graph"), ("method", "route")
        answered = "Requests by status; 499: the client disconnected."
        self._requests = counter("capsnet_requests", answered, (*route, "status"))
        text = "Seconds of one request."
        self._seconds = histogram("capsnet_request_seconds", text, route, buckets=_SECONDS)
        self._in_flight = total("capsnet_requests_in_flight", "Requests in progress.")
        text = "Seconds of one request in preprocess, queue or compute."
        self._stages = histogram("capsnet_stage_seconds", text, ("stage",), buckets=_SECONDS)
        text = "Seconds of one batch."
        self._batch_seconds = histogram("capsnet_batch_seconds", text, graph, buckets=_SECONDS)
        self._batch_rows = histogram(
            "capsnet_batch_rows", "Rows of one batch.", graph, buckets=_ROWS
        )
        self._refusals = counter("capsnet_rejections", "Rejected or late requests.", ("reason",))
        self._waiting = total(
            "capsnet_waiting_rows", "Cost of the rows admitted and not yet computed."
        )
        text = "1: provider and models in use."
        self._providers = info("capsnet_provider_info", text, ("provider", "models"))
        self._provider: Any = None
        # Opens the last files now: an inference must not fail because no descriptor is left.
        self._refusals.labels("busy"), self._stages.labels("compute")

    def record_models(self, provider: str, names: Iterable[str]) -> None:
        """Record which models are loaded, and the provider that runs them."""
        if self._provider:
            self._provider.set(0)
        self._provider = self._providers.labels(provider, ",".join(sorted(names)))
        self._provider.set(1)

    def begin_request(self) -> None:
        """Count a request that begins."""
        self._in_flight.inc()

    def end_request(self, waiting_cost: int) -> None:
        """Count a request that has ended."""
        self._in_flight.dec()
        self._waiting.set(waiting_cost)

    def record_request(
        self, method: str, route: str, status: int, seconds: Mapping[str, float]
    ) -> None:
        """Count a request.

        Args:
            method: of the request.
            route: the path's template, never what the client typed.
            status: of the answer.
            seconds: `total`, and the time in each stage.
        """
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds["total"])
        for stage, spent in seconds.items():
            if stage != "total":
                self._stages.labels(stage).observe(spent)

    def record_rejection(self, reason: str) -> None:
        """Count a request that was refused or not answered in time."""
        self._refusals.labels(reason).inc()

    def record_batch(self, graph: tuple[str, str], rows: int, seconds: float) -> None:
        """Count an inference with a model's graph. Called where it was computed."""
        self._batch_rows.labels(*graph).observe(rows)
        self._batch_seconds.labels(*graph).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """The number of workers in each state."""
        workers = GaugeMetricFamily("capsnet_workers", "Workers by state.", labels=["state"])
        for state, count in self._count_workers().items():
            workers.add_metric([state], count)
        yield workers

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._shown)


def write_as(slot: int) -> None:
    """Write this process's metrics under a slot. The next worker in the slot continues them.

    Their files take their room on disk now. Writing to a hole of a mapped file ends the process by
    SIGBUS, once the disk is full.

    Raises:
        OSError: there is no room.
    """
    for kind in _FILES:
        with (Path(os.environ[FOLDER_VARIABLE]) / f"{kind}_{slot}.db").open("ab") as file:
            file.write(bytes(max(0, _FILE_BYTES - file.tell())))
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]
