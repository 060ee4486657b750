"""One of the processes that answer requests: its app, its bundles and their reload."""

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
from typing import Any

from model.runtime import DeviceError
from service.api.models import summarise
from service.app import create_app, open_here
from service.health import Health
from service.http.keys import Access
from service.inference.bundles import NothingToServe, ReloadRefused, trim_memory
from service.inference.engine import Backend, Engine
from service.processes.server import Server
from service.processes.snapshots import LockHeld, Snapshots
from service.processes.status import FOLDER, Status
from service.settings import Settings, SettingsError
from service.telemetry import logs
from service.telemetry.metrics import Metrics, write_as

log = logging.getLogger(__name__)
_POLL_S = 0.5
"""How often a worker looks which bundles it is to serve."""
_REPORTS_POLL_S = 0.05
"""How often a reload looks whether all workers serve the new bundles."""


def create_server(workers: int, slot: int, send_status: Callable[[str | bool], None]) -> Server:
    """The server of one worker.

    Args:
        workers: how many there are.
        slot: which of them this is.
        send_status: tells the supervisor that this process is ready, or why it ends.
    """
    write_as(slot)
    try:
        settings = Settings.from_environment().model_copy(update={"workers": workers})
        logs.configure(settings.log_format, access_log=settings.access_log)
        worker = Worker(settings, slot, Path(os.environ[FOLDER]), lambda: send_status(True))
    except SettingsError as error:
        send_status(str(error))
        sys.exit(1)
    return Server(worker.app, settings, send_status, worker.others_answer)


class Worker:
    """Serves the current copy of the bundles, and the next one when there is one."""

    def __init__(
        self, settings: Settings, slot: int, folder: Path, on_ready: Callable[[], object]
    ) -> None:
        self._settings, self._slot = settings, slot
        self._on_ready = on_ready
        self._status = Status(folder, settings.workers)
        self._snapshots = Snapshots(folder)
        self._digest = self._snapshots.current
        self._access = Access(settings, self._digest and self._snapshots.keys(self._digest))
        self.app = create_app(
            settings,
            access=self._access,
            open_engine=self._open,
            reload=self._reload,
            status=self._status,
        )
        self._state = self.app.state

    def others_answer(self) -> bool:
        """Whether other workers can answer, while this one cannot."""
        try:
            return bool(self._status.serving)
        except OSError:  # no descriptor is left
            return True

    async def _open(self, metrics: Metrics, health: Health) -> Engine:
        """Load the current copy.

        It is reported first and compared then: a reload that has seen no report of this worker has
        replaced the copy before.
        """
        del metrics, health
        self._loop = asyncio.get_running_loop()
        digest = self._digest
        if digest is None:
            digest = await asyncio.to_thread(self._copy_first)
        while True:
            engine = await self._load(digest)
            self._status.report(self._slot, digest)
            self._digest = digest
            if (current := self._snapshots.current or digest) == digest:
                break
            engine.backend.close()
            digest = current
        self._following = asyncio.ensure_future(self._follow())
        self._on_ready()
        return engine

    def _copy_first(self) -> str:
        """The current copy, which the first worker makes."""
        with self._snapshots.lock(wait=True):
            if (digest := self._snapshots.current) is None:
                digest = self._snapshots.take(self._settings, self._access.dump(), strict=False)
                self._snapshots.use(digest)
            return digest

    async def _load(self, digest: str, *, strict: bool = False) -> Engine:
        metrics, health = self._state.metrics, self._state.health
        folder = self._snapshots.bundles(digest)
        return await open_here(self._settings, metrics, health, strict=strict, folder=folder)

    async def _follow(self) -> None:
        """Load the current copy whenever it is another, and reload when that is requested."""
        while True:
            await asyncio.sleep(_POLL_S)
            try:
                if self._status.wants_reload:
                    await self._reload(requested=True)
                digest = self._snapshots.current
            except (ReloadRefused, OSError) as error:  # no descriptor is left
                log.error("reload failed: %s", error)  # noqa: TRY400
                continue
            if digest and digest != self._digest:
                try:
                    self._use(digest, await self._load(digest))
                except Exception as error:  # noqa: BLE001  whatever it is, another process may do better
                    self._state.health.fail(f"the current bundles cannot be loaded: {error}")
                    return

    async def _reload(self, *, requested: bool = False) -> dict[str, Any]:
        """Load the bundles on disk, have all workers serve them, and return their summary.

        Args:
            requested: by a signal to the supervisor; one worker takes the request.

        Raises:
            ReloadRefused: one is broken, or another reload is under way; nothing has changed.
        """
        health = self._state.health
        if health.closing:
            raise ReloadRefused("the service is ending")
        try:
            with self._snapshots.lock(wait=False):
                if not requested or self._status.take_request():
                    await self._replace()
        except LockHeld as error:
            if requested:  # it waits until the lock is free
                return {}
            raise ReloadRefused("another reload is under way") from error
        return summarise(health.engine, self._settings).model_dump(mode="json")

    async def _replace(self) -> None:
        """Copy what is on disk, load it strictly, and have all workers do the same.

        Raises:
            ReloadRefused: it cannot be loaded; nothing has changed.
        """
        digest = ""
        try:
            keys = Access(self._settings).dump()
            digest = await asyncio.to_thread(self._snapshots.take, self._settings, keys)
            if digest != self._digest:
                engine = await self._load(digest, strict=True)
                self._snapshots.use(digest)
                self._use(digest, engine)
        except (DeviceError, NothingToServe, OSError, ReloadRefused, SettingsError) as error:
            self._snapshots.discard(digest)
            raise ReloadRefused(str(error)) from error
        while any(worker.digest != digest for worker in self._status.serving):  # noqa: ASYNC110
            await asyncio.sleep(_REPORTS_POLL_S)  # other processes write them

    def _use(self, digest: str, engine: Engine) -> None:
        """Answer with another engine; requests that run keep theirs, which ends with the last."""
        old = self._state.health.engine
        retire = partial(self._loop.call_soon_threadsafe, self._retire, old.backend)
        weakref.finalize(old, retire).atexit = False
        del old
        self._access.load(self._snapshots.keys(digest))
        self._state.use(engine)
        self._digest = digest
        self._status.report(self._slot, digest)

    def _retire(self, backend: Backend) -> None:
        """End an engine; its sessions are in cycles, which were frozen when they were loaded."""
        backend.close(0)
        gc.unfreeze()
        self._loop.call_later(_POLL_S, trim_memory)
