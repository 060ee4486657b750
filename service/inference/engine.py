"""An engine computes with all loaded bundles through one batcher: arrays in, arrays out.

`ServedNet` is a network as one request computes with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar, get_args

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.bundle.samples import Sample
from model.outputs import Encoding, Graph, Row
from model.preprocess import Floats
from model.runtime import DeviceLostError, Runtime
from model.runtime.cpu import PROVIDER as CPU_PROVIDER
from model.views.net import Net
from service.admission import TURN_COST, Claim, row_prices
from service.errors import Problem, Unavailable
from service.inference.batcher import Batcher, OnBatch, Queue
from service.shared import SlowThread

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
MAX_TRACED_IMAGES = 8
"""A batch traces at most this many images, because each trace takes megabytes."""
BATCH_S = 0.05
"""A batch takes about this long at most, so that who comes next need not wait for longer."""
QUICK_S = 0.02
"""A lone row that takes no longer is computed on the event loop, if that is on a CPU."""


@dataclass(eq=False)
class Engine:
    """What computes rows, and what is known of its networks."""

    batcher: Batcher
    manifests: dict[str, Manifest]
    """The manifests of the loaded bundles, by model name."""
    provider: str
    """The onnxruntime provider in use; several, where a bundle fell back to the CPU."""
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    """The samples by model name, of the bundles that have some."""
    prices: Mapping[tuple[str, Graph], int] = field(default_factory=dict)
    """The price of a row of each graph, by model name: see `row_prices`."""
    answers: dict[Hashable, bytes] = field(default_factory=dict)
    """Serialised answers that only another engine changes."""

    def default_model(self, wanted: str) -> str:
        """Return the model of requests that name none: the wanted one, or the first by name."""
        return wanted if wanted in self.manifests else min(self.manifests, default=wanted)

    def price(self, model: str, graph: Graph) -> int:
        """The price of a row of a model's graph."""
        return self.prices.get((model, graph), 1)


@dataclass(frozen=True)
class ServedNet(Net):
    """One network of an engine, for the rows of one request.

    Methods that compute raise `Unavailable`: see `Batcher.submit`, or the device was lost.
    """

    manifest: Manifest
    engine: Engine
    claim: Claim
    slow: SlowThread

    async def encode(self, images: Sequence[Floats]) -> list[Encoding[Floats] | Exception]:
        """Encode images in batches with those of other requests. One may fail alone."""
        encoded = await super().encode(images)
        return [_checked(row) if isinstance(row, Exception) else row for row in encoded]

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on the thread for slow work."""
        return await self.slow.run(work, *args, **kwargs)

    async def compute(self, graph: Graph, rows: Sequence[Row]) -> list[Row | Exception]:
        """The results of rows, in order. A row that failed has its exception as result.

        Rows beyond the first turn wait behind those that others sent meanwhile, so that nobody
        waits for all of a large request.

        Raises:
            Unavailable: see `Batcher.submit`.
        """
        model, engine, claim = self.manifest.name, self.engine, self.claim
        results: list[Row | Exception] = []
        price = engine.price(model, graph) * claim.relative_size
        turn_rows = max(1, TURN_COST // price)
        for start in range(0, len(rows), turn_rows):
            turn, began = rows[start : start + turn_rows], time.monotonic()
            try:
                computed = await engine.batcher.submit((model, graph), turn, caller=claim.caller)
            except BaseException:  # too late, or its client has left
                claim.seconds["queue"] += time.monotonic() - began
                raise
            claim.seconds["queue"] += computed.waited_s
            claim.seconds["compute"] += computed.computed_s
            claim.record_computed(price * len(turn), computed.own_s)
            results += computed.rows
        return results


def _checked(error: Exception) -> Problem:
    """The problem of one image, unless the device is lost: that is no image's fault."""
    if isinstance(error, Unavailable):
        raise error
    log.error("inference failed for one image", exc_info=error)
    return Problem("inference failed for this picture")


def graph_of(needs: Offer | None) -> Graph:
    """The graph that computes most rows of what needs this of a network."""
    if needs is None:
        return "encode"
    return "decode" if needs == "neighbours" else needs


def open_engine(
    runtimes: Mapping[str, Runtime],
    *,
    on_batch: OnBatch = lambda _name, _rows, _seconds: None,
    on_lost: Callable[[Exception], None] = lambda _error: None,
) -> Engine:
    """Start an engine in this process: a queue for each graph of each bundle, and one thread.

    Args:
        runtimes: by model name.
        on_batch: see `Batcher`.
        on_lost: called if the device is lost, where that was noticed. No row is computed any more.

    Raises:
        model.runtime.DeviceError: the device that was asked for does not work.
    """
    queues: dict[Hashable, Queue] = {}
    for name, runtime in runtimes.items():
        max_rows: dict[Graph, int] = {
            "encode": runtime.max_encode_rows,
            "decode": runtime.max_decode_rows,
            "trace": MAX_TRACED_IMAGES,
        }
        for graph, most in max_rows.items():
            queues[name, graph] = Queue(_compute(runtime, graph, on_lost), most, BATCH_S)

    def warm_up() -> None:
        for runtime in runtimes.values():
            runtime.warm_up()

    providers = ", ".join(sorted({runtime.provider for runtime in runtimes.values()}))
    batcher = Batcher(
        queues,
        warm_up=warm_up,
        on_batch=on_batch,
        quick_s=QUICK_S if providers == CPU_PROVIDER else 0,
    )
    manifests = {name: runtime.manifest for name, runtime in runtimes.items()}
    samples = {name: runtime.bundle.samples for name, runtime in runtimes.items()}
    prices = row_prices(
        {
            (name, graph): runtime.core_s(graph)
            for name, runtime in runtimes.items()
            for graph in get_args(Graph)
        }
    )
    return Engine(batcher, manifests, providers, samples, prices)


def _compute(
    runtime: Runtime, graph: Graph, on_lost: Callable[[Exception], None]
) -> Callable[[list[Row]], list[Row]]:
    def compute(rows: list[Row]) -> list[Row]:
        try:
            return runtime.compute(graph, rows)
        except DeviceLostError as error:
            on_lost(error)
            raise Unavailable(f"inference failed: {error}", retry_after_s=1) from error

    return compute
