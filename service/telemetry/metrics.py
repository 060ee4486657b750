"""The metrics at `/metrics`. Every one is described in docs/reference/metrics.md."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    values,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from service import VERSION
from service.telemetry.reports import FOLDER, BatchReport, Workers

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

WRITE_S = 0.1
"""What requests count is written after at most this long."""
_PAUSE = 9
"""A page is rendered after a pause of so many times what the page before took."""
_FILES = ("counter", "gauge_livemax", "gauge_livesum", "histogram")
"""The files' prefixes that prometheus_client gives to each process."""
_FILE_BYTES = 1 << 20
"""The size of the files that prometheus_client creates."""


class Metrics:
    """A registry of its own or, where workers share a folder, the sum of all workers'.

    The children of a metric are remembered: prometheus_client finds each anew, behind a lock.
    What requests count is written together, every `WRITE_S`: between two inferences, each would
    take several times as long. A page shows all that was counted before it was asked for.
    """

    def __init__(
        self, waiting_rows: Callable[[], int] = lambda: 0, registry: Workers | None = None
    ) -> None:
        self._waiting_rows = waiting_rows
        own = CollectorRegistry()
        self._shown, self._is_shared = CollectorRegistry() if registry else own, bool(registry)
        if registry:
            MultiProcessCollector(self._shown)  # type: ignore[no-untyped-call]
        self._last_page: asyncio.Task[bytes] | None = None
        self._next_page: asyncio.Task[bytes] | None = None
        """Not begun yet; None where nobody waits for it."""
        self._may_render_at = 0.0
        self._active = 0
        self._ended: deque[tuple[str, str, int, Mapping[str, float]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._writing = Lock()
        self._shown.register(_Workers(registry))
        self._shown.register(_Processes(registry))
        counter = partial(_children, Counter, own)
        histogram = partial(_children, partial(Histogram, buckets=_SECONDS), own)
        rows = partial(_children, partial(Histogram, buckets=_ROWS), own)
        gauge = partial(_children, partial(Gauge, multiprocess_mode="livesum"), own)
        info = partial(_children, partial(Gauge, multiprocess_mode="livemax"), own)
        graph, route = ("model", "graph"), ("method", "route")
        answered = "Requests by status; 499: the client disconnected."
        self._requests = counter("capsnet_requests", answered, (*route, "status"))
        self._seconds = histogram("capsnet_request_seconds", "Seconds of one request.", route)
        self._in_flight = gauge("capsnet_requests_in_flight", "Requests in progress.")()
        stages = "Seconds of one request in preprocess, queue or compute."
        self._stages = histogram("capsnet_stage_seconds", stages, ("stage",))
        self._batch_seconds = histogram("capsnet_batch_seconds", "Seconds of one batch.", graph)
        self._batch_rows = rows("capsnet_batch_rows", "Rows of one batch.", graph)
        self._padding = counter("capsnet_padding_rows", "Rows that pad batches.", graph)
        self._refusals = counter("capsnet_rejections", "Rejected or late requests.", ("reason",))
        self._waiting = gauge("capsnet_waiting_rows", "Rows admitted and not yet computed.")()
        provider = ("provider", "models")
        self._providers = info("capsnet_provider_info", "1: provider and models in use.", provider)
        self._provider: Gauge | None = None
        info("capsnet_build_info", "Version of the service.", ("version",))(VERSION).set(1)
        # Opens the last files now: an inference must not fail because no descriptor is left.
        self._refusals("busy"), self._stages("compute")

    def record_models(self, provider: str, names: Iterable[str]) -> None:
        """Record which models are loaded, and the provider that runs them."""
        if self._provider:
            self._provider.set(0)
        self._provider = self._providers(provider, ",".join(sorted(names)))
        self._provider.set(1)

    def begin_request(self) -> None:
        """Count a request that begins."""
        self._active += 1
        self._write_soon()

    def end_request(self) -> None:
        """Count a request that has ended."""
        self._active -= 1
        self._write_soon()

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
        self._ended.append((method if method in _METHODS else "other", route, status, seconds))
        self._write_soon()

    def record_rejection(self, reason: str) -> None:
        """Count a request that was refused or not answered in time."""
        self._refusals(reason).inc()

    def record_batch(self, report: BatchReport) -> None:
        """Count an inference. Called on the inference thread."""
        model, graph = report.key
        self._batch_rows(model, graph).observe(report.rows)
        self._batch_seconds(model, graph).observe(report.seconds)
        self._padding(model, graph).inc(report.padding)

    async def page(self) -> bytes:
        """Render on a thread, one page at a time and for at most a tenth of the time.

        Everyone who asks before a page is begun gets that page.
        """
        if self._next_page is None:
            self._next_page = asyncio.ensure_future(self._render_after(self._last_page))
        return await asyncio.shield(self._next_page)

    async def _render_after(self, last: asyncio.Task[bytes] | None) -> bytes:
        """Render once the page before is rendered and its pause is over."""
        if last and not last.done():
            await asyncio.wait([last])
        pause_s = self._may_render_at - time.monotonic()
        await asyncio.sleep(max(pause_s, WRITE_S if self._is_shared else 0))
        self._last_page, self._next_page = self._next_page, None
        began = time.monotonic()
        try:
            return await asyncio.to_thread(self.render)
        finally:
            now = time.monotonic()
            self._may_render_at = now + _PAUSE * (now - began)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        self.write()
        return generate_latest(self._shown)

    def collect(self) -> list[Metric]:
        """All metrics."""
        self.write()
        return list(self._shown.collect())

    def write(self) -> None:
        """Write what was counted to where pages are rendered from."""
        with self._writing:
            self._timer = None
            self._in_flight.set(self._active)
            self._waiting.set(self._waiting_rows())
            while self._ended:
                method, route, status, seconds = self._ended.popleft()
                self._requests(method, route, status).inc()
                self._seconds(method, route).observe(seconds["total"])
                for stage, spent in seconds.items():
                    if stage != "total":
                        self._stages(stage).observe(spent)

    def _write_soon(self) -> None:
        """Write within `WRITE_S`; at once where no event loop runs."""
        if self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(WRITE_S, self.write)
            except RuntimeError:
                self.write()


def _children(
    make: Callable[..., Any], registry: CollectorRegistry, name: str, text: str, labels: Any = ()
) -> Callable[..., Any]:
    """Make a function that returns a metric's child for given labels."""
    metric = make(name, text, labels, registry=registry)
    return cache(metric.labels) if labels else lambda: metric


def write_as(slot: int) -> None:
    """Write this process's metrics under a slot. The next worker in the slot continues them.

    Their files take their room on disk now. Writing to a hole of a mapped file ends the process by
    SIGBUS, once the disk is full.

    Raises:
        OSError: there is no room.
    """
    for kind in _FILES:
        with (Path(os.environ[FOLDER]) / f"{kind}_{slot}.db").open("ab") as file:
            file.write(bytes(max(0, _FILE_BYTES - file.tell())))
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]


class _Workers(Collector):
    """The workers and what became of them, if there is a supervisor."""

    def __init__(self, registry: Workers | None) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """The counts of the status."""
        workers = GaugeMetricFamily("capsnet_workers", "Workers by state.", labels=["state"])
        ended = CounterMetricFamily("capsnet_processes", "Processes by fate.", labels=["fate"])
        if self._registry:
            for name, number in self._registry.counts._asdict().items():
                family = workers if name in ("wanted", "ready") else ended
                family.add_metric([name], number)
        yield workers
        yield ended


class _Processes(Collector):
    """Collects the memory, CPU time and open files of this process, or of all workers."""

    def __init__(self, registry: Workers | None) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """The metrics of prometheus_client's own collector, by `pid`."""
        pids = (
            [worker.pid for worker in self._registry.ready_workers]
            if self._registry
            else [os.getpid()]
        )
        families: dict[str, Metric] = {}
        for pid in map(str, pids):
            for metric in ProcessCollector(pid=partial(str, pid), registry=None).collect():
                family = families.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                for sample in metric.samples:
                    family.add_sample(sample.name, {"pid": pid}, sample.value)
        yield from families.values()
