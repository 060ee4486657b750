"""An engine computes with all loaded bundles through one batcher: arrays in, arrays out."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np

from model.bundle import Manifest
from model.bundle.figures import Figure
from model.bundle.manifest import Offer
from model.bundle.samples import Sample
from model.outputs import Graph
from model.runtime import Array, DeviceLostError, Runtime
from service.inference.batcher import Batcher, BatcherLost, Queue
from service.inference.job import Job
from service.inference.price import row_prices
from service.telemetry import timings
from service.telemetry.reports import BatchReport

MAX_TRACED_IMAGES = 8
"""A batch traces at most this many images, because each trace takes megabytes."""
BATCH_S = 0.05
"""A batch takes about this long at most, so that who comes next need not wait for longer."""
Row = tuple[Array, ...]
"""A row: one image, or one pose and its class; or their result."""


@dataclass(eq=False)
class Engine:
    """Computes rows. Rows of different jobs share batches."""

    batcher: Batcher
    manifests: dict[str, Manifest]
    """The manifests of the loaded bundles, by model name."""
    provider: str
    """The onnxruntime provider in use; several, where a bundle fell back to the CPU."""
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    """The samples by model name, of the bundles that have some."""
    figures: Mapping[str, Sequence[Figure]] = field(default_factory=dict)
    """The figures by model name, likewise."""
    prices: Mapping[tuple[str, Graph], int] = field(default_factory=dict)
    """The price of a row of each graph, by model name: see `row_prices`."""
    answers: dict[Hashable, bytes] = field(default_factory=dict)
    """Serialised answers that only another engine changes."""

    def default_model(self, wanted: str) -> str:
        """Return the model of requests that name none: the wanted one, or the only one."""
        alone = wanted not in self.manifests and len(self.manifests) == 1
        return next(iter(self.manifests)) if alone else wanted

    def __repr__(self) -> str:
        return f"Engine({sorted(self.manifests)}, {self.provider!r}, {self.batcher!r})"

    @property
    def running_s(self) -> float:
        """How long the running batch has taken so far, in seconds; 0 if none runs."""
        return self.batcher.running_s

    def close(self, timeout_s: float | None = None) -> bool:
        """Finish accepted rows. Return whether that ended within the timeout."""
        return self.batcher.close(timeout_s)

    def price(self, model: str, graph: Graph) -> int:
        """The price in rows of one row of a model's graph."""
        return self.prices.get((model, graph), 1)

    async def submit(self, key: Hashable, rows: Sequence[Row], job: Job) -> list[Row | Exception]:
        """Wait for the results of rows, in order. A row that failed has its exception as result.

        Raises:
            Closed, DeadlineExceeded: see `Batcher.submit`.
        """
        began = time.monotonic()
        try:
            results = await self.batcher.submit(key, rows, job)
        except BaseException:  # too late, or its client has left
            timings.record("queue", time.monotonic() - began)
            raise
        timings.record("queue", results.waited_s)
        timings.record("compute", results.computed_s)
        return results.rows


def graph_of(needs: Offer | None) -> Graph:
    """The graph that computes most rows of what needs this of a network."""
    if needs is None:
        return "encode"
    return "decode" if needs == "neighbours" else needs


def open_engine(
    runtimes: Mapping[str, Runtime],
    *,
    on_batch: Callable[[BatchReport], None] = lambda _report: None,
    on_lost: Callable[[Exception], None] = lambda _error: None,
) -> Engine:
    """Start an engine in this process: a queue for each graph of each bundle, and one thread.

    See `Batcher` for the arguments.

    Raises:
        model.runtime.DeviceError: the device that was asked for does not work.
    """
    queues: dict[Hashable, Queue] = {}
    for name, runtime in runtimes.items():
        for graph, run, max_rows, padding in (
            ("encode", runtime.encode, runtime.max_encode_rows, runtime.encoder_padding),
            ("decode", _decode(runtime), runtime.max_decode_rows, runtime.decoder_padding),
            ("trace", _trace(runtime), MAX_TRACED_IMAGES, lambda _rows: 0),
        ):
            queues[name, graph] = Queue(_in_rows(run), max_rows, padding, BATCH_S)

    def warm_up() -> None:
        for runtime in runtimes.values():
            runtime.warm_up()

    batcher = Batcher(queues, warm_up=warm_up, on_batch=on_batch, on_lost=on_lost)
    providers = ", ".join(sorted({runtime.provider for runtime in runtimes.values()}))
    manifests = {name: runtime.manifest for name, runtime in runtimes.items()}
    samples = {name: runtime.bundle.samples for name, runtime in runtimes.items()}
    figures = {name: runtime.bundle.figures for name, runtime in runtimes.items()}
    prices = row_prices(
        {
            (name, graph): runtime.core_s(graph)
            for name, runtime in runtimes.items()
            for graph in get_args(Graph)
        }
    )
    return Engine(batcher, manifests, providers, samples, figures, prices)


def _in_rows(run: Callable[..., Sequence[Array]]) -> Callable[[list[Row]], list[Row]]:
    """Convert a function of arrays of rows into one of lists of rows."""

    def compute(rows: list[Row]) -> list[Row]:
        if len(rows) > 1 and len({row[0].shape for row in rows}) > 1:  # images of several sizes
            return [result for row in rows for result in compute([row])]
        try:
            if len(rows) == 1:
                outputs = run(*(np.asarray(part)[None] for part in rows[0]))
            else:
                outputs = run(*(np.stack(column) for column in zip(*rows, strict=True)))
        except DeviceLostError as error:
            raise BatcherLost(str(error)) from error
        if not all(np.isfinite(array).all() for array in outputs):
            raise ArithmeticError("the network answered with NaN or infinity")
        return list(zip(*outputs, strict=True))

    return compute


def _decode(runtime: Runtime) -> Callable[..., Sequence[Array]]:
    return lambda poses, classes: [runtime.decode(poses, classes)]


def _trace(runtime: Runtime) -> Callable[..., Sequence[Array]]:
    return lambda images: [*runtime.trace(images).named().values()]
