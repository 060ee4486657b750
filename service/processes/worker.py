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
from service.app import create_app, load_engine
from service.errors import BundleRefused, KeysRefused, NoSpace, Problem, ReloadUnderWay, Unavailable
from service.http.context import Context
from service.http.keys import Access
from service.inference.batcher import Batcher
from service.inference.bundles import NothingToServe, ReloadRefused, trim_memory
from service.inference.engine import Engine
from service.processes.folder import ReadyWorker, WorkerRegistry, hold
from service.processes.server import Server
from service.processes.snapshots import LockHeld, Revision, Snapshots
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
        send_to_supervisor: tells the supervisor that this process is ready, or why it ends.
    """
    write_as(slot)
    try:
        settings = Settings.from_environment().model_copy(update={"workers": workers})
        logs.configure(settings.log_format)
        folder = Path(os.environ[FOLDER_VARIABLE])
        worker = Worker(settings, slot, folder, lambda: send_to_supervisor(True))
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
        self._holding = hold(folder)
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
            count_workers=self._registry.count_workers,
        )
        self._context: Context = self.app.state  # type: ignore[assignment]  # see `create_app`
        self._loading = asyncio.Lock()

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
            try:
                engine = await self._load(revision.bundles)
            except Exception:
                if self._current.bundles == revision.bundles:
                    raise  # else a reload has removed this copy meanwhile
                revision = self._current
                continue
            self._report(revision)
            if (current := self._current).bundles == revision.bundles:
                break
            engine.close()
            revision = current
        self._report(current)
        self._following = [
            asyncio.ensure_future(self._repeat(follow))
            for follow in (self._follow_keys, self._follow_bundles)
        ]
        self._on_ready()
        return engine

    def _copy_first(self) -> Revision:
        """Return the current bundles and keys. The first worker makes them current."""
        with self._snapshots.lock(wait=True):
            if (current := self._snapshots.current) is None:
                bundles = self._snapshots.take(self._settings, strict=False)
                current = self._snapshots.change(bundles=bundles, keys=self._access.dump())
            return current

    async def _load(self, digest: str, *, strict: bool = False) -> Engine:
        return await load_engine(
            self._context, strict=strict, folder=self._snapshots.bundles(digest)
        )

    @property
    def _current(self) -> Revision:
        current = self._snapshots.current
        assert current  # made before a worker loads
        return current

    async def _repeat(self, follow: Callable[[], Awaitable[None]]) -> None:
        """Follow what is current or requested, for as long as this process runs."""
        while True:
            await asyncio.sleep(_POLL_S)
            try:
                await follow()
            except (Problem, OSError) as error:  # no descriptor is left
                log.error("reload failed: %s", error)  # noqa: TRY400
            except Exception as error:  # such as no thread; others would wait for ever
                if self._context.draining:  # threads have ended: nothing starts any more
                    log.info("reload dropped, as the service is ending: %s", error)
                    return
                log.exception("reload failed")

    async def _follow_keys(self) -> None:
        """Use the current keys, whatever the bundles do."""
        self._use_keys(self._current.keys)

    async def _follow_bundles(self) -> None:
        """Reload when a signal has requested that, and serve the current bundles."""
        if not self._context.draining and self._registry.take_request():
            await self._reload(by_signal=True)
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Serve the current bundles, if they are others by now.

        Raises:
            OSError: the current ones cannot be read.
            BundleRefused: they cannot be loaded; this process has failed.
        """
        async with self._loading:
            bundles = self._current.bundles
            if self._revision and bundles != self._revision.bundles:
                try:
                    self._use_bundles(bundles, await self._load(bundles))
                except Exception as error:  # whatever it is, another process may do better
                    reason = f"the current bundles cannot be loaded: {error}"
                    self._context.fail(reason)
                    raise BundleRefused(reason) from error

    async def _reload(self, *, by_signal: bool = False) -> None:
        """Have all workers serve the keys on disk, and then the bundles on disk.

        The keys wait for no bundle, nor for another reload of bundles.

        Args:
            by_signal: SIGHUP asked for it, which another worker does later if one reloads now.

        Raises:
            Unavailable: this worker is starting or ending.
            KeysRefused: nothing has changed.
            BundleRefused, NoSpace, ReloadUnderWay: only the keys have.
        """
        if not (self._context.loaded and self._revision):
            raise Unavailable("the service is starting", retry_after_s=1)
        if self._context.draining:
            raise Unavailable("the service is ending", retry_after_s=1)
        await self._replace_keys()
        try:
            with self._snapshots.lock(wait=False):
                try:
                    await self._replace_bundles()
                finally:
                    self._snapshots.remove_others()
        except LockHeld as error:
            if not by_signal:
                raise ReloadUnderWay("another reload is under way", retry_after_s=5) from error
            self._registry.request_reload()  # again, until the lock is free

    async def _replace_keys(self) -> None:
        """Have all workers use the keys on disk, and return when they do.

        Raises:
            KeysRefused: they cannot be used.
        """
        try:
            keys = (await asyncio.to_thread(Access, self._settings)).dump()
        except SettingsError as error:
            raise KeysRefused(str(error)) from error
        if keys != self._current.keys:
            self._snapshots.change(keys=keys)
            self._use_keys(keys)
            await self._until_all(lambda worker: worker.keys == self._current.keys_digest)

    async def _replace_bundles(self) -> None:
        """Have all workers serve the bundles on disk, and return when they do.

        Raises:
            BundleRefused, NoSpace: the bundles cannot be used.
        """
        await self._catch_up()
        try:
            bundles = await asyncio.to_thread(self._snapshots.take, self._settings)
            if bundles == self._current.bundles:
                return
            engine = await self._load(bundles, strict=True)
        except OSError as error:
            kind = NoSpace if error.errno == errno.ENOSPC else BundleRefused
            raise kind(error.strerror or str(error)) from error
        except (DeviceError, NothingToServe, ReloadRefused) as error:
            raise BundleRefused(str(error)) from error
        self._snapshots.change(bundles=bundles)
        self._use_bundles(bundles, engine)
        await self._until_all(lambda worker: worker.bundles == bundles)

    async def _until_all(self, serve_it: Callable[[ReadyWorker], bool]) -> None:
        while not all(map(serve_it, self._registry.ready_workers)):  # noqa: ASYNC110
            await asyncio.sleep(_REPORTS_POLL_S)  # other processes write them

    def _use_keys(self, keys: str) -> None:
        """Answer with other keys, if they are others."""
        if self._revision and keys != self._revision.keys:
            self._report(self._revision._replace(keys=keys))

    def _use_bundles(self, bundles: str, engine: Engine) -> None:
        """Answer with another engine.

        Requests that run keep the engine that they have, which ends with the last of them.
        """
        old = self._context.engine
        retire = partial(self._loop.call_soon_threadsafe, self._retire, old.batcher)
        weakref.finalize(old, retire).atexit = False
        del old
        self._context.use(engine)
        assert self._revision  # see `_reload`
        self._report(self._revision._replace(bundles=bundles))

    def _report(self, revision: Revision) -> None:
        """Use a revision's keys, and record that this worker serves the revision."""
        self._access.replace(revision.keys)
        self._registry.report(self._slot, revision.bundles, revision.keys_digest)
        self._revision = revision

    def _retire(self, batcher: Batcher) -> None:
        """Close an engine. Its sessions are in cycles, which were frozen when they were loaded."""
        batcher.close(0)
        gc.unfreeze()
        self._loop.call_later(_POLL_S, trim_memory)
