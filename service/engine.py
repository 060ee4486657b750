"""Where inference happens: off the event loop, on the one thread that owns the sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.bundle import Manifest
from model.runtime import Encoding, Floats, Runtime

P = ParamSpec("P")
T = TypeVar("T")


class Engine:
    """Answers encode and decode calls of any task, one after the other.

    Args:
        runtimes: the loaded bundles by name; the engine alone uses them from here on.
    """

    def __init__(self, runtimes: Mapping[str, Runtime]) -> None:
        self._runtimes = dict(runtimes)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inference")

    def __repr__(self) -> str:
        return f"Engine(models={sorted(self._runtimes)}, provider={self.provider!r})"

    @property
    def manifests(self) -> dict[str, Manifest]:
        """What is loaded, by name."""
        return {name: runtime.bundle.manifest for name, runtime in self._runtimes.items()}

    @property
    def provider(self) -> str:
        """The onnxruntime provider in use."""
        return next(iter(self._runtimes.values())).provider

    async def encode(self, model: str, images: Floats) -> Encoding:
        """Class capsules of images (N, 1, H, W)."""
        return await self._run(self._runtimes[model].encode, images)

    async def decode(self, model: str, poses: Floats, classes: NDArray[np.int64]) -> Floats:
        """Images (M, 1, H, W) of poses (M, D) of classes (M,)."""
        return await self._run(self._runtimes[model].decode, poses, classes)

    def close(self) -> None:
        """Finish what was accepted and stop the thread."""
        self._thread.shutdown()

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: call(*args, **kwargs))
