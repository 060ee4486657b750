"""The loaded bundles behind one batcher: arrays in, arrays out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.bundle import Manifest
from model.preprocess import Floats
from model.runtime import (
    ClassTrace,
    DeviceLostError,
    Encoding,
    LayerTrace,
    Runtime,
    Trace,
)
from service import timings
from service.batcher import Batcher, RunnerLost
from service.waiting import Runner, Visit

visiting: ContextVar[Visit | None] = ContextVar("visiting", default=None)
"""The visit that this task works for, in seconds of `time.monotonic`."""
_EFFICIENT_IMAGES = 8
"""The encoder's weights are read once for a batch, which pays from so many images on."""


class Engine:
    """Encodes, decodes and routes for any task; rows of different callers share batches.

    Each bundle has a queue for each of its graphs, and the same threads serve all, the queue whose
    first caller came first. On CUDA that is one thread, which also warms the networks up
    before the constructor returns: CUDA graphs belong to the thread that captured them.

    Args:
        runtimes: the loaded bundles by name; the engine alone uses them from here on.
        max_route_rows: largest batch of images whose routing is traced; each weighs megabytes.
        batching: further arguments of the batcher.

    Raises:
        model.runtime.DeviceError: the device that was asked for does not work.
    """

    def __init__(
        self, runtimes: Mapping[str, Runtime], *, max_route_rows: int = 8, **batching: Any
    ) -> None:
        self._runtimes = dict(runtimes)
        runners: dict[Hashable, Runner] = {}
        for name, runtime in self._runtimes.items():
            runners[name, "encode"] = Runner(
                _encoder(runtime),
                runtime.max_encode_rows,
                runtime.encoder_padding,
                partial(_any_thread, runtime),
                _EFFICIENT_IMAGES,
            )
            runners[name, "decode"] = Runner(
                _decoder(runtime),
                runtime.max_decode_rows,
                runtime.decoder_padding,
                partial(_any_thread, runtime),
            )
            runners[name, "route"] = Runner(
                _tracer(runtime), max_route_rows, efficient_rows=max_route_rows
            )
        self.batcher = Batcher(runners, prepare=self._warm_up, **batching)

    def __repr__(self) -> str:
        return f"Engine({sorted(self._runtimes)}, {self.provider!r}, {self.batcher!r})"

    @property
    def manifests(self) -> dict[str, Manifest]:
        """What is loaded, by name."""
        return {name: runtime.bundle.manifest for name, runtime in self._runtimes.items()}

    @property
    def provider(self) -> str:
        """The onnxruntime provider in use; more than one, where a bundle fell back to the CPU."""
        return ", ".join(sorted({runtime.provider for runtime in self._runtimes.values()}))

    def check_room(self, rows: int, *, ahead: int) -> None:
        """Let images in, or refuse them if there is no room behind those that are on their way.

        Raises:
            service.batcher.Full: see `Batcher.check_room`.
        """
        visit = visiting.get() or Visit()
        self.batcher.check_room(rows, ahead=ahead, until=visit.until)
        visit.admitted = True

    async def encode(self, model: str, images: list[Floats]) -> list[Encoding | Exception]:
        """Presence (K,) and poses (K, D) of each image (C, H, W), or what went wrong with it.

        Raises:
            service.batcher.Full, service.batcher.Closed: see `Batcher.submit`.
        """
        return await self._submit((model, "encode"), images)

    async def decode(self, model: str, poses: Floats, classes: NDArray[np.int64]) -> Floats:
        """Images (M, C, H, W) of poses (M, D) of classes (M,).

        Raises:
            service.batcher.Full, service.batcher.Closed: see `Batcher.submit`.
            Exception: what the runtime raised for one of the poses.
        """
        rows = list(zip(poses, classes, strict=True))
        images = await self._submit((model, "decode"), rows)
        for image in images:
            if isinstance(image, Exception):
                raise image
        return np.stack(images)

    async def trace(self, model: str, image: Floats) -> Trace:
        """What routing did with one image (C, H, W); no leading axis.

        Raises:
            service.batcher.Full, service.batcher.Closed: see `Batcher.submit`.
            Exception: what the runtime raised.
        """
        (trace,) = await self._submit((model, "route"), [image])
        if isinstance(trace, Exception):
            raise trace
        assert isinstance(trace, Trace)
        return trace

    def _warm_up(self) -> int:
        """How many threads run batches then: CUDA may turn out not to work."""
        for runtime in self._runtimes.values():
            runtime.warm_up()
        return min(runtime.side_by_side for runtime in self._runtimes.values())

    async def _submit(self, key: Hashable, rows: Sequence[Any]) -> list[Any]:
        came = time.monotonic()
        try:
            answers = await self.batcher.submit(key, rows, visiting.get())
        except asyncio.CancelledError:  # too late, or its client has left
            timings.note("queue", time.monotonic() - came)
            raise
        timings.note("queue", answers.waited_s, ended_s_ago=answers.computed_s)
        timings.note("compute", answers.computed_s)
        return answers.rows

    def close(self, timeout_s: float | None = None) -> bool:
        """Finish what was accepted and stop the thread; whether it ended within the timeout."""
        return self.batcher.close(timeout_s)


def _any_thread(runtime: Runtime) -> bool:
    return runtime.any_thread


@contextmanager
def _losing() -> Iterator[None]:
    """In the batcher's words, a lost device is a lost runner."""
    try:
        yield
    except DeviceLostError as error:
        raise RunnerLost(str(error)) from error


def _encoder(runtime: Runtime) -> Callable[[list[Floats]], list[Encoding]]:
    @_losing()
    def encode(images: list[Floats]) -> list[Encoding]:
        return [Encoding(*one) for one in zip(*runtime.encode(np.stack(images)), strict=True)]

    return encode


def _decoder(runtime: Runtime) -> Callable[[list[tuple[Floats, np.int64]]], list[Floats]]:
    @_losing()
    def decode(rows: list[tuple[Floats, np.int64]]) -> list[Floats]:
        poses, classes = zip(*rows, strict=True)
        return list(runtime.decode(np.stack(poses), np.array(classes, np.int64)))

    return decode


def _tracer(runtime: Runtime) -> Callable[[list[Floats]], list[Trace]]:
    @_losing()
    def trace(images: list[Floats]) -> list[Trace]:
        classes, hidden = runtime.trace(np.stack(images))
        return [
            Trace(
                ClassTrace(*(values[row] for values in classes)),
                {
                    name: LayerTrace(*(values[row] for values in layer))
                    for name, layer in hidden.items()
                },
            )
            for row in range(len(images))
        ]

    return trace
