"""A worker: a process that answers requests, with its app, its bundles and their reload."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import sys
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from model.runtime import DeviceError
from service.app import Context, create_app, load_engine
from service.errors import BundleRefused, KeysRefused, NoSpace, Problem, ReloadUnderWay, Unavailable
from service.http.keys import Access
from service.inference.batcher import Batcher
from service.inference.bundles import trim_memory
from service.inference.engine import Engine
from service.processes.folder import Revision, Revisions, hold
from service.processes.server import Server
from service.processes.snapshots import Snapshots
from service.settings import Settings, SettingsError
from service.telemetry import FOLDER_VARIABLE, logs
from service.telemetry.metrics import write_as

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
        send_to_supervisor: tells the supervisor that this process runs, or why it ends.
    """
    write_as(slot)
    try:
        settings = Settings.from_environment().model_copy(update={"workers": workers})
        logs.configure(settings.log_format)
        folder = Path(os.environ[FOLDER_VARIABLE])
        worker = Worker(settings, slot, folder)
    except SettingsError as error:
        send_to_supervisor(str(error))
        sys.exit(1)
    return Server(worker.app, settings, send_to_supervisor, worker.others_answer)


class Worker:
    """Serves the current bundles and keys, and the next ones once they are current."""

    def __init__(self, settings: Settings, slot: int, folder: Path) -> None:
        self._settings, self._slot = settings, slot
        self._holding = hold(folder)
        self._revisions = Revisions(folder, settings.workers)
        self._snapshots = Snapshots(folder, self._revisions)
        current = self._revisions.current
        self._served = Revision()
        """What this worker serves."""
        self._access = Access(settings, current.keys)
        self.app = create_app(
            settings,
            access=self._access,
            load=self._open,
            reload=self._reload,
            count_workers=self._revisions.count_workers,
        )
        self._context: Context = self.app.state  # type: ignore[assignment]  # see `create_app`
        self._loading = asyncio.Lock()

    def others_answer(self) -> bool:
        """Whether other workers can answer, while this one cannot."""
        try:
            return bool(self._revisions.served)
        except OSError:  # no descriptor is left
            return True

    async def _open(self) -> Engine:
        """Load the current bundles.

        Report first, then compare: a reload that did not wait for this report has already made
        others current, which are loaded then.
        """
        if not self._revisions.current.bundles:
            await asyncio.to_thread(self._copy_first)
        while True:
            revision = self._revisions.current
            engine = await self._load(revision.bundles)
            self._serve(revision)
            if self._revisions.current.bundles == revision.bundles:
                break
            engine.batcher.close()
        follow = (self._follow_keys, self._follow_bundles)
        self._following = [asyncio.ensure_future(self._repeat(step)) for step in follow]
        return engine

    def _copy_first(self) -> None:
        """Make the bundles and keys current, unless another worker has."""
        with self._snapshots.lock(wait=True):
            if not self._revisions.current.bundles:
                bundles = self._snapshots.take(self._settings, strict=False)
                self._revisions.change(keys=self._access.dump(), bundles=bundles)

    async def _load(self, bundles: str, *, strict: bool = False) -> Engine:
        return await load_engine(self._context, strict=strict, folder=Path(bundles))

    async def _repeat(self, follow: Callable[[], Awaitable[None]]) -> None:
        """Follow what is current or requested, for as long as this process runs."""
        while True:
            await asyncio.sleep(_POLL_S)
            try:
                await follow()
            except Exception as error:  # such as no thread; others would wait for ever
                if self._context.draining:  # threads have ended: nothing starts any more
                    return
                is_known = isinstance(error, Problem | OSError)  # no descriptor is left
                log.error("reload failed: %s", error, exc_info=not is_known)  # noqa: TRY400

    async def _follow_keys(self) -> None:
        """Use the current keys, whatever the bundles do."""
        self._serve(self._served._replace(keys=self._revisions.current.keys))

    async def _follow_bundles(self) -> None:
        """Reload when a signal has requested that, and serve the current bundles."""
        if not self._context.draining and self._revisions.take_request():
            try:
                await self._reload()
            except ReloadUnderWay:
                self._revisions.request_reload()  # again, until no other reloads
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Serve the current bundles, if they are others by now.

        Raises:
            OSError: the current ones cannot be read.
            BundleRefused: they cannot be loaded; this process has failed.
        """
        async with self._loading:
            bundles = self._revisions.current.bundles
            if bundles != self._served.bundles:
                try:
                    self._use_bundles(bundles, await self._load(bundles))
                except Exception as error:  # whatever it is, another process may do better
                    reason = f"the current bundles cannot be loaded: {error}"
                    self._context.fail(reason)
                    raise BundleRefused(reason) from error

    async def _reload(self) -> None:
        """Have all workers serve the keys on disk, and then the bundles on disk.

        The keys wait for no bundle, nor for another reload of bundles.

        Raises:
            Unavailable: this worker is starting or ending.
            KeysRefused: nothing has changed.
            BundleRefused, NoSpace, ReloadUnderWay: only the keys have.
        """
        if not self._context.loaded:
            raise Unavailable("the service is starting", retry_after_s=1)
        if self._context.draining:
            raise Unavailable("the service is ending", retry_after_s=1)
        await self._replace_keys()
        try:
            with self._snapshots.lock(wait=False):
                await self._replace_bundles()
        except BlockingIOError as error:
            raise ReloadUnderWay("another reload is under way", retry_after_s=5) from error

    async def _replace_keys(self) -> None:
        """Have all workers use the keys on disk, and return when they do.

        Raises:
            KeysRefused: they cannot be used.
        """
        try:
            keys = (await asyncio.to_thread(Access, self._settings)).dump()
        except SettingsError as error:
            raise KeysRefused(str(error)) from error
        if keys != self._revisions.current.keys:
            self._revisions.change(keys=keys)
            await self._follow_keys()
            await self._until_all(lambda served: served.keys == self._revisions.current.keys)

    async def _replace_bundles(self) -> None:
        """Have all workers serve the bundles on disk, and return when they do.

        Raises:
            BundleRefused, NoSpace: the bundles cannot be used.
        """
        await self._catch_up()
        try:
            bundles = await asyncio.to_thread(self._snapshots.take, self._settings)
            if bundles == self._served.bundles:
                return
            engine = await self._load(bundles, strict=True)
        except OSError as error:
            kind = NoSpace if error.errno == errno.ENOSPC else BundleRefused
            reason = error.strerror or str(error)
            raise kind(f"{error.filename}: {reason}" if error.filename else reason) from error
        except DeviceError as error:
            raise BundleRefused(str(error)) from error
        self._revisions.change(bundles=bundles)
        self._use_bundles(bundles, engine)
        await self._until_all(lambda served: served.bundles == bundles)

    async def _until_all(self, serve_it: Callable[[Revision], bool]) -> None:
        while not all(map(serve_it, self._revisions.served)):  # noqa: ASYNC110
            await asyncio.sleep(_REPORTS_POLL_S)  # other processes write them

    def _use_bundles(self, bundles: str, engine: Engine) -> None:
        """Answer with another engine.

        Requests that run keep the engine that they have, which ends with the last of them.
        """
        old = self._context.loaded
        assert old
        loop = asyncio.get_running_loop()
        retire = partial(loop.call_soon_threadsafe, _retire, loop, old.batcher)
        weakref.finalize(old, retire).atexit = False
        del old
        self._context.use(engine)
        self._serve(self._served._replace(bundles=bundles))

    def _serve(self, revision: Revision) -> None:
        """Use a revision's keys, and record that this worker serves the revision."""
        if revision != self._served:
            self._access.replace(revision.keys)
            self._revisions.report(self._slot, revision)
            self._served = revision


def _retire(loop: asyncio.AbstractEventLoop, batcher: Batcher) -> None:
    """Close an engine. Its sessions are in cycles, which were frozen when they were loaded."""
    batcher.close(0)
    gc.unfreeze()
    loop.call_later(_POLL_S, trim_memory)
