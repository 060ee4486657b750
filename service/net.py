"""A loaded network as views see it: `model.views.net.Net`, through the batcher."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.bundle import Manifest
from model.outputs import Encoding, Trace
from model.preprocess import Floats
from service.errors import Problem
from service.pipeline import Pipeline

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class ServedNet:
    """One network, as the pipeline of one request computes with it."""

    pipeline: Pipeline
    manifest: Manifest

    async def encode(self, images: Sequence[Floats]) -> list[Encoding[Floats] | Exception]:
        """Encode images in batches with those of other requests. One may fail alone."""
        return list(map(_logged, await self.pipeline.encode(self.manifest, images)))

    async def decode(self, poses: Floats, labels: int | NDArray[np.int64]) -> Floats:
        """Decode poses in batches with those of other requests."""
        return await self.pipeline.decode(self.manifest, poses, labels)

    async def trace(self, image: Floats) -> Trace[Floats]:
        """Trace the routing of one image."""
        return await self.pipeline.trace(self.manifest, image)

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on the thread for slow work."""
        return await self.pipeline.slow.run(work, *args, **kwargs)


def _logged(row: Encoding[Floats] | Exception) -> Encoding[Floats] | Exception:
    if not isinstance(row, Exception):
        return row
    log.error("inference failed for one image", exc_info=row)
    return Problem("inference failed for this picture")
