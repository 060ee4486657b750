"""The pipeline of one request, from its uploads to the model's outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.outputs import Encoding, Graph, Trace
from model.preprocess import Floats, Prepared
from model.views.net import require
from service.errors import Problem, UnknownModel, unwrap
from service.inference.engine import Engine, Row
from service.inference.job import Admission, Job
from service.pictures import ImageSpec, Upload
from service.pictures.pools import DecodePools
from service.slow import SlowThread
from service.telemetry import timings

TURN_ROWS = 32
"""A large request computes rows of this price at a time."""


@dataclass
class Pipeline:
    """Admits one request, decodes its uploads and runs the model.

    Methods that compute raise `Closed` and `DeadlineExceeded`: see `Batcher.submit`.
    """

    engine: Engine
    job: Job
    admission: Admission
    decode_pools: DecodePools
    default_model: str
    """The model of requests that name none, if it is loaded: see `Engine.default_model`."""
    max_cost: int
    """The most rows that a request to this route may cost."""
    drawing: Admission | None = None
    """The admission of drawing jobs, where the response has to be drawn in a process."""
    slow: SlowThread = field(default_factory=SlowThread)
    """Runs what takes milliseconds of Python."""
    charge: Callable[[int], object] | None = None
    """Charges the client for so many rows, or raises RateLimited."""

    def __post_init__(self) -> None:
        self._drawn = Job(self.job.arrived)

    def admit(self, rows: int, *, files: int = 0, price: int = 1) -> None:
        """Admit the job with the price of its rows, and its drawing, before anything is decoded.

        A job of a higher price than the limit of admission has the queue for itself. The caller is
        charged for at least one row for each of the files.

        Args:
            rows: of the job.
            files: that are decoded.
            price: of one row: see `Engine.price`.

        Raises:
            QueueFull: see `Admission.admit`.
            RateLimited: the caller has asked for too many.
            ValueError: the route declares less, by which the limit of admission is chosen.
        """
        if rows > self.max_cost:
            raise ValueError(f"the route declares at most {self.max_cost} rows, not {rows}")
        self.job.cost = min(rows * price, self.admission.limit)
        self.admission.admit(self.job)
        if self.drawing:
            self._drawn = Job(self.job.arrived, self.job.deadline)
            self.drawing.admit(self._drawn)
        if self.charge:
            self.charge(max(rows * price, files))

    def record_drawing(self) -> None:
        """Record that the response is drawn."""
        if self.drawing:
            self.drawing.record_completed(self._drawn, 1)

    def release(self) -> None:
        """Give back the admitted rows that were not computed."""
        self.admission.release(self.job)
        if self.drawing:
            self.drawing.release(self._drawn)

    def manifest(self, model: str | None, *, needs: Offer | None = None) -> Manifest:
        """The manifest of a loaded bundle, or of the default one.

        Raises:
            UnknownModel: it is not loaded.
            NotOffered: its network cannot do what is needed.
        """
        name = model or self.engine.default_model(self.default_model)
        if name not in self.engine.manifests:
            known = ", ".join(sorted(self.engine.manifests))
            near = get_close_matches(name, self.engine.manifests, 1)
            hint = "".join(f". Did you mean {one!r}?" for one in near)
            raise UnknownModel(f"{name!r} is not loaded; loaded: {known}{hint}", parameter="model")
        manifest = self.engine.manifests[name]
        require(manifest, needs)
        return manifest

    async def prepare(self, uploads: list[Upload], spec: ImageSpec) -> list[Prepared | Problem]:
        """Decode and fit all uploads, in order.

        An upload that cannot be read yields its problem.
        """
        began = time.monotonic()
        try:
            return await self.decode_pools.prepare(uploads, spec, deadline=self.job.deadline)
        finally:
            timings.record("preprocess", time.monotonic() - began)

    async def encode(
        self, manifest: Manifest, images: Sequence[Floats]
    ) -> list[Encoding[Floats] | Exception]:
        """Encode images (C, H, W) to presence (K,) and poses (K, D).

        One that fails yields its exception.
        """
        rows = await self._compute(manifest, "encode", [(image,) for image in images])
        return [row if isinstance(row, Exception) else Encoding(*row) for row in rows]

    async def decode(
        self, manifest: Manifest, poses: Floats, labels: int | NDArray[np.int64]
    ) -> Floats:
        """Decode poses (M, D) of one class, or of a class each, to images (M, C, H, W)."""
        if not len(poses):
            return np.zeros((0, *manifest.image_shape), np.float32)
        classes = np.broadcast_to(np.asarray(labels, np.int64), len(poses))
        rows = await self._compute(manifest, "decode", list(zip(poses, classes, strict=True)))
        return np.stack([image for (image,) in map(unwrap, rows)])

    async def trace(self, manifest: Manifest, image: Floats) -> Trace[Floats]:
        """Trace the routing of one image (C, H, W). The trace's arrays have no leading axis."""
        (row,) = await self._compute(manifest, "trace", [(image,)])
        return Trace.of(unwrap(row), manifest.layers)

    async def _compute(
        self, manifest: Manifest, graph: Graph, rows: Sequence[Row]
    ) -> list[Row | Exception]:
        """The results of rows, in order.

        Rows beyond the first turn wait behind those that others sent meanwhile, so that nobody
        waits for all of a large request.
        """
        results: list[Row | Exception] = []
        price = self.engine.price(manifest.name, graph)
        turn_rows = max(1, TURN_ROWS // price)
        for start in range(0, len(rows), turn_rows):
            if start:
                self.job.arrived = time.monotonic()
            turn, before_s = rows[start : start + turn_rows], self.job.computed_s
            results += await self.engine.submit((manifest.name, graph), turn, self.job)
            seconds = self.job.computed_s - before_s
            self.admission.record_completed(self.job, price * len(turn), seconds)
        return results
