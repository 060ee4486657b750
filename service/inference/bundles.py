"""Bundles are loaded at the start, and exchanged for others while requests are answered."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from model.bundle import MANIFEST, Bundle, BundleError
from model.runtime import DeviceError, Runtime
from model.runtime.cpu import cpu_quota
from service.inference.engine import Backend, Engine
from service.inference.job import Closed
from service.settings import Settings

log = logging.getLogger(__name__)
_RETRY_S = 0.2
"""Between attempts to reach an engine that is starting."""


class NothingToServe(Exception):
    """No bundle could be loaded, or not the default one."""


class ReloadRefused(Exception):
    """Not all bundles could be loaded, or a reload is under way; nothing has changed."""


def load_runtimes(
    settings: Settings, *, strict: bool = False, workers: int = 1
) -> dict[str, Runtime]:
    """Load the bundles that the settings name. A broken one is left out.

    Args:
        settings: where bundles are, which of them to load and on what.
        strict: whether a broken one is an error.
        workers: processes that share the threads.

    Raises:
        NothingToServe: the default bundle is not among the loaded ones.
        ReloadRefused: one is broken, if `strict`.
        model.runtime.DeviceError: the device that was asked for does not work.
    """

    def refuse(reason: str) -> None:
        if strict:
            raise ReloadRefused(reason)
        log.error("bundle skipped: %s", reason)

    runtimes: dict[str, Runtime] = {}
    threads = settings.threads or cpu_quota()
    named = [settings.bundles / name for name in settings.models]
    found = settings.bundles.glob(f"*/{MANIFEST}")
    for path in named or sorted(manifest.parent for manifest in found):
        try:
            runtime = Runtime(
                Bundle.open(path),
                device=settings.device,
                threads=max(1, threads // workers),
                lone_threads=threads,
                cuda=settings.cuda,
                max_encode_rows=settings.max_batch_rows,
            )
        except BundleError as error:
            refuse(str(error))
            continue
        other = runtimes.setdefault(runtime.bundle.manifest.name, runtime)
        if other is not runtime:
            refuse(f"{path}: its name is already taken by {other.bundle.path}")
    if not settings.bundles.is_dir():
        raise NothingToServe(f"there is no folder of bundles {settings.bundles}")
    if settings.default_model not in runtimes:
        raise NothingToServe(
            f"the default model {settings.default_model!r} is not among the loaded bundles "
            f"({', '.join(sorted(runtimes)) or 'none'}) of {settings.bundles}"
        )
    return runtimes


def settle_memory() -> None:
    """Give back what loading needed, and let the garbage collector pass over what stays.

    With hundreds of requests in flight it would go through all of it again and again.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(5000, 50, 100)
    with suppress(OSError, AttributeError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(eq=False)
class _InUse:
    """An engine and the requests that it is answering."""

    engine: Engine
    requests: int = 0
    replaced: bool = False

    def retire(self) -> None:
        """Close it once it is replaced and idle; its thread may still compute for nobody."""
        if self.replaced and not self.requests:
            self.engine.close(0)


class Bundles:
    """The engine in use. For one event loop alone.

    A request keeps the engine that it began with, so that a pose is decoded by the network that
    encoded it.

    Args:
        open_engine: loads the bundles, or connects to the engine that listens at a path; `strict`
            makes a broken bundle an error, `on_lost` is called when that engine is gone.
        on_use: called with each engine that is used from then on.
    """

    def __init__(
        self,
        open_engine: Callable[..., Awaitable[Engine]],
        on_use: Callable[[Engine], object] = lambda _engine: None,
    ) -> None:
        self._open_engine = open_engine
        self._on_use = on_use
        self._connecting: asyncio.Task[None] | None = None
        self._in_use: _InUse | None = None
        self._candidate: Engine | None = None
        self._preparing = False

    @property
    def running_s(self) -> float:
        """How long the batch that is being computed has taken so far."""
        return self._in_use.engine.backend.running_s if self._in_use else 0.0

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The engine for one request.

        Raises:
            Closed: there is none yet.
        """
        in_use = self._in_use
        if in_use is None:
            raise Closed("the service is starting")
        in_use.requests += 1
        try:
            yield in_use.engine
        finally:
            in_use.requests -= 1
            in_use.retire()

    async def load(self, path: Path | None = None) -> None:
        """Load the bundles at the start, or connect to an engine as soon as it is there.

        Raises:
            NothingToServe, model.runtime.DeviceError: see `load_runtimes`.
        """
        while True:
            try:
                self.use(await self._open(path, strict=False))
            except OSError:
                if path is None:
                    raise
                await asyncio.sleep(_RETRY_S)
            else:
                settle_memory()
                return

    async def reload(self) -> None:
        """Load all bundles anew and exchange them.

        Raises:
            ReloadRefused: one is broken or missing, or a reload is under way.
        """
        await self.prepare()
        self.commit()

    async def prepare(self, path: Path | None = None) -> None:
        """Load what `commit` is to put into place.

        Raises:
            ReloadRefused: see `reload`.
        """
        if self._preparing:
            raise ReloadRefused("another reload is under way")
        self._preparing = True
        self.abort()  # one that was neither taken nor dropped
        try:
            self._candidate = await self._open(path, strict=True)
        except (NothingToServe, DeviceError, OSError) as error:
            raise ReloadRefused(str(error)) from error
        finally:
            self._preparing = False

    def commit(self) -> None:
        """Use what was prepared for all requests from here on."""
        if self._candidate:
            self.use(self._candidate)
            settle_memory()
        self._candidate = None

    def abort(self) -> None:
        """Drop what was prepared."""
        if self._candidate:
            self._candidate.close(0)
        self._candidate = None

    def use(self, engine: Engine | None) -> None:
        """Use another engine, or none for now."""
        old, self._in_use = self._in_use, _InUse(engine) if engine else None
        if old:
            old.replaced = True
            old.retire()
        if engine:
            self._on_use(engine)
            log.info("ready: %s with %s", ", ".join(engine.manifests), engine.provider)

    def close(self, timeout_s: float) -> bool:
        """Stop the engine; whether it finished within the timeout."""
        return self._in_use is None or self._in_use.engine.close(timeout_s)

    async def _open(self, path: Path | None, *, strict: bool) -> Engine:
        return await self._open_engine(path, strict=strict, on_lost=partial(self._lose, path))

    def _lose(self, path: Path | None, backend: Backend) -> None:
        """Connect anew, if an engine that is gone was in use."""
        if self._in_use and self._in_use.engine.backend is backend:
            self.use(None)
            self._connecting = asyncio.get_running_loop().create_task(self.load(path))
