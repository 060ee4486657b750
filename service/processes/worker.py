"""A worker: a process that answers requests, with its app, its bundles and their reload."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

from model.runtime import DeviceError
from service.app import create_app, load_engine
from service.http.keys import Access
from service.inference.bundles import NothingToServe, ReloadRefused, trim_memory
from service.inference.engine import Backend, Engine
from service.inference.job import Closed
from service.processes.registry import WorkerRegistry
from service.processes.server import Server
from service.processes.snapshots import LockHeld, Revision, Snapshots
from service.settings import Settings, SettingsError
from service.telemetry import logs
from service.telemetry.metrics import write_as
from service.telemetry.reports import FOLDER

log = logging.getLogger(__name__)
_POLL_S = 0.5
"""A worker checks this often which bundles and keys are current."""
_REPORTS_POLL_S = 0.05
"""A reload checks this often whether all workers serve the new bundles."""


def create_server(
    workers: int, slot: int, send_to_supervisor: Callable[[str | bool], None]
) -> Server:
    """The server of one worker.

    Args:
        workers: how many there are.
        slot: which of them this is.
        send_to_supervisor: tells the supervisor that this process is ready, or why it ends.
    """
    write_as(slot)
    try:
        settings = Settings.from_environment().model_copy(update={"workers": workers})
        logs.configure(settings.log_format, access_log=settings.access_log)
        worker = Worker(settings, slot, Path(os.environ[FOLDER]), lambda: send_to_supervisor(True))
    except SettingsError as error:
        send_to_supervisor(str(error))
        sys.exit(1)
    return Server(worker.app, settings, send_to_supervisor, worker.others_answer)


class Worker:
    """Serves the current bundles and keys, and the next ones once they are current."""

    def __init__(
        self, settings: Settings, slot: int, folder: Path, on_ready: Callable[[], object]
    ) -> None:
        self._settings, self._slot = settings, slot
        self._on_ready = on_ready
        self._registry = WorkerRegistry(folder, settings.workers)
        self._snapshots = Snapshots(folder)
        self._revision = self._snapshots.current
        """What this worker serves, or serves first; None where no copy has been made."""
        self._access = Access(settings, self._revision and self._revision.keys)
        self.app = create_app(
            settings,
            access=self._access,
            load=self._open,
            reload=self._reload,
            registry=self._registry,
        )
        self._state = self.app.state

    def others_answer(self) -> bool:
        """Whether other workers can answer, while this one cannot."""
        try:
            return bool(self._registry.ready_workers)
        except OSError:  # no descriptor is left
            return True

    async def _open(self) -> Engine:
        """Load the current bundles and keys.

        Report first, then compare with `current`: a reload that did not wait for this report has
        already changed `current`, and the loop loads again.
        """
        self._loop = asyncio.get_running_loop()
        if (revision := self._revision) is None:
            revision = await asyncio.to_thread(self._copy_first)
        while True:
            engine = await self._load(revision.bundles)
            self._access.replace(revision.keys)
            self._registry.report(self._slot, revision.digest)
            self._revision = revision
            if (current := self._snapshots.current or revision) == revision:
                break
            engine.backend.close()
            revision = current
        self._following = asyncio.ensure_future(self._follow())
        self._on_ready()
        return engine

    def _copy_first(self) -> Revision:
        """Return the current bundles and keys. The first worker makes them current."""
        with self._snapshots.lock(wait=True):
            if (current := self._snapshots.current) is None:
                bundles = self._snapshots.take(self._settings, strict=False)
                current = Revision(bundles, self._access.dump())
                self._snapshots.make_current(current)
            return current

    async def _load(self, digest: str, *, strict: bool = False) -> Engine:
        metrics, health = self._state.metrics, self._state.health
        folder = self._snapshots.bundles(digest)
        return await load_engine(self._settings, metrics, health, strict=strict, folder=folder)

    async def _follow(self) -> None:
        """Serve what is current, and reload when that is requested."""
        while True:
            await asyncio.sleep(_POLL_S)
            try:
                if self._registry.wants_reload:
                    await self._reload(by_signal=True)
                await self._catch_up()
            except (ReloadRefused, OSError) as error:  # no descriptor is left
                log.error("reload failed: %s", error)  # noqa: TRY400
            except Exception:  # such as no thread; other workers would wait for this one for ever
                log.exception("reload failed")

    async def _catch_up(self) -> None:
        """Serve the current bundles and keys, if they are others by now.

        Raises:
            OSError: the current ones cannot be read.
            ReloadRefused: they cannot be loaded; this process has failed.
        """
        current, served = self._snapshots.current, self._revision
        if current and served and current != served:
            is_same = current.bundles == served.bundles
            try:
                self._use(current, None if is_same else await self._load(current.bundles))
            except Exception as error:  # whatever it is, another process may do better
                reason = f"the current bundles cannot be loaded: {error}"
                self._state.health.fail(reason)
                raise ReloadRefused(reason) from error

    async def _reload(self, *, by_signal: bool = False) -> None:
        """Load the keys and bundles on disk, and have all workers serve them.

        Args:
            by_signal: SIGHUP asked for it: only the worker that takes the request file reloads.

        Raises:
            Closed: this worker is starting.
            ReloadRefused: the keys are unfit or another reload is under way, and nothing has
                changed; or a bundle is broken, and only the keys have.
        """
        health = self._state.health
        if not (health.loaded and self._revision):
            raise Closed("the service is starting")
        if health.draining:
            raise ReloadRefused("the service is ending")
        try:
            with self._snapshots.lock(wait=False):
                if not by_signal or self._registry.take_request():
                    await self._replace()
        except LockHeld as error:
            if not by_signal:  # else the request file stays until the lock is free
                raise ReloadRefused("another reload is under way") from error

    async def _replace(self) -> None:
        """Read the keys on disk, then copy and load the bundles; have all workers serve each.

        The keys come first, so that no bundle keeps a removed key valid.

        Raises:
            ReloadRefused: one of them cannot be used, and stays as it was.
        """
        await self._catch_up()
        assert self._revision  # see `_reload`
        bundles = ""
        try:
            if (keys := Access(self._settings).dump()) != self._revision.keys:
                await self._publish(self._revision._replace(keys=keys))
            bundles = await asyncio.to_thread(self._snapshots.take, self._settings)
            if bundles != self._revision.bundles:
                engine = await self._load(bundles, strict=True)
                await self._publish(self._revision._replace(bundles=bundles), engine)
        except (DeviceError, NothingToServe, OSError, ReloadRefused, SettingsError) as error:
            self._snapshots.discard(bundles)
            raise ReloadRefused(str(error)) from error

    async def _publish(self, revision: Revision, engine: Engine | None = None) -> None:
        """Have all workers serve a revision, and return when they do.

        Args:
            revision: the bundles and keys.
            engine: has loaded the bundles, if they are others.
        """
        self._snapshots.make_current(revision)
        self._use(revision, engine)
        while any(worker.digest != revision.digest for worker in self._registry.ready_workers):  # noqa: ASYNC110
            await asyncio.sleep(_REPORTS_POLL_S)  # other processes write them

    def _use(self, revision: Revision, engine: Engine | None) -> None:
        """Answer with a revision's keys, and with another engine if one is given.

        Requests that run keep the engine that they have, which ends with the last of them.
        """
        if engine:
            old = self._state.health.engine
            retire = partial(self._loop.call_soon_threadsafe, self._retire, old.backend)
            weakref.finalize(old, retire).atexit = False
            del old
            self._state.use(engine)
        self._access.replace(revision.keys)
        self._registry.report(self._slot, revision.digest)
        self._revision = revision

    def _retire(self, backend: Backend) -> None:
        """Close an engine. Its sessions are in cycles, which were frozen when they were loaded."""
        backend.close(0)
        gc.unfreeze()
        self._loop.call_later(_POLL_S, trim_memory)
