"""A loaded network as one request computes with it: `model.views.net.Net`, through the batcher."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.bundle import Manifest
from model.outputs import Encoding, Graph, Trace
from model.preprocess import Floats
from service.errors import Problem, unwrap
from service.inference.engine import Engine, Row
from service.inference.job import Admission, Job
from service.slow import SlowThread

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")
TURN_ROWS = 16
"""A large request computes rows of this price at a time."""


@dataclass(frozen=True)
class ServedNet:
    """One network of an engine, for the rows of one job.

    Methods that compute raise `Closed` and `DeadlineExceeded`: see `Batcher.submit`.
    """

    manifest: Manifest
    engine: Engine
    job: Job
    admission: Admission
    slow: SlowThread

    async def encode(self, images: Sequence[Floats]) -> list[Encoding[Floats] | Exception]:
        """Encode images in batches with those of other requests. One may fail alone."""
        rows = await self._compute("encode", [(image,) for image in images])
        return [_logged(row) if isinstance(row, Exception) else Encoding(*row) for row in rows]

    async def decode(self, poses: Floats, labels: int | NDArray[np.int64]) -> Floats:
        """Decode poses in batches with those of other requests."""
        if not len(poses):
            return np.zeros((0, *self.manifest.image_shape), np.float32)
        classes = np.broadcast_to(np.asarray(labels, np.int64), len(poses))
        rows = await self._compute("decode", list(zip(poses, classes, strict=True)))
        return np.stack([image for (image,) in map(unwrap, rows)])

    async def trace(self, image: Floats) -> Trace[Floats]:
        """Trace the routing of one image."""
        (row,) = await self._compute("trace", [(image,)])
        return Trace.of(unwrap(row), self.manifest.layers)

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on the thread for slow work."""
        return await self.slow.run(work, *args, **kwargs)

    async def _compute(self, graph: Graph, rows: Sequence[Row]) -> list[Row | Exception]:
        """The results of rows, in order.

        Rows beyond the first turn wait behind those that others sent meanwhile, so that nobody
        waits for all of a large request.
        """
        results: list[Row | Exception] = []
        price = self.engine.price(self.manifest.name, graph) * self.job.size
        turn_rows = max(1, TURN_ROWS // price)
        for start in range(0, len(rows), turn_rows):
            if start:
                self.admission.queue(self.job)
            turn, before_s = rows[start : start + turn_rows], self.job.computed_s
            results += await self.engine.submit((self.manifest.name, graph), turn, self.job)
            seconds = self.job.computed_s - before_s
            self.admission.record_completed(self.job, price * len(turn), seconds)
        return results


def _logged(error: Exception) -> Problem:
    log.error("inference failed for one image", exc_info=error)
    return Problem("inference failed for this picture")
