"""Starts the workers, hands connections to them in turn, and reloads all or none."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import onnxruntime
from prometheus_client.multiprocess import mark_process_dead

from model.runtime.cuda import PROVIDER as CUDA_PROVIDER
from service.control import Message
from service.inference.process import NO_CUDA
from service.process import Process
from service.server import has_terminal
from service.settings import Settings

log = logging.getLogger(__name__)
WORKER, ENGINE = "service.worker", "service.inference.process"
_ACCEPTED_AT_ONCE = 64
_HAND_OVER_AGAIN_S = 0.05
_RELOAD_TIMEOUT_S = 300.0
_MARGIN_S = 10.0
"""Beyond its own limits, what a worker may take to end before it is killed."""


class Supervisor:
    """Owns the port; workers answer.

    Each connection goes to the next worker that is ready. If workers shared the listening socket,
    the kernel would give most of a burst of connections to one of them. SIGTERM drains all workers,
    SIGHUP reloads all or none.

    Args:
        settings: of the whole service.
        folder: for sockets, as long as the service runs.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._workers = [
            Process(WORKER, receive=self._receive, ended=self._note_end)
            for _ in range(settings.of_worker().workers)
        ]
        self._engine: Process | None = None
        self._engines = count()
        self._source: str | None = None
        """Path of the engine's socket; "": each worker loads the bundles; None: not decided yet."""
        self._listeners: list[socket.socket] = []
        self._failure: str | None = None
        self._signals = 0
        self._over = asyncio.Event()
        self._turn = 0
        self._outcomes: dict[Process, asyncio.Future[str | None]] = {}
        self._reloading = False
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> str | None:
        """Serve until there is a reason to stop: the failure, if it is one."""
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sig, self._drain)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up, has_terminal())
        try:
            self._listeners = self._listen()
        except OSError as error:
            return f"cannot listen on {self._settings.host}:{self._settings.port}: {error}"
        runs = [self._begin(self._keep(worker)) for worker in self._workers]
        self._begin(self._load())
        await self._over.wait()
        while self._listeners:
            loop.remove_reader(listener := self._listeners.pop())
            self._accept(listener)  # closing would reset what waits there
            listener.close()
        for process in self._processes:
            process.stop()
        longest_s = self._settings.drain_timeout_s + _MARGIN_S
        await asyncio.wait(runs, timeout=0 if self._signals > 1 else longest_s)
        codes = [run.result() if run.done() else None for run in runs]
        for process in self._processes:
            process.kill()
        if any(code != 0 for code in codes) and self._signals < 2:
            self.fail("a worker exited with an error")
        return self._failure

    def fail(self, reason: str) -> None:
        """End the service; the first reason counts."""
        self._failure = self._failure or reason
        self._over.set()

    @property
    def _processes(self) -> list[Process]:
        return [*self._workers, *([self._engine] if self._engine else [])]

    def _begin(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _keep(self, process: Process) -> int | None:
        """Have a process run until the service ends; its exit code."""
        try:
            return await process.run()
        except RuntimeError as error:
            self.fail(str(error))
        return None

    def _receive(self, process: Process, message: Message) -> None:
        match message:
            case {"up": _}:
                for listener in self._listeners:  # until then the backlog holds who comes
                    asyncio.get_running_loop().add_reader(listener, self._accept, listener)
                if self._source is not None:
                    process.send({"load": self._source})
            case {"ready": _}:
                self._settle(process, None)
            case {"prepared": refusal}:
                self._settle(process, refusal)
            case {"failed": reason}:
                self._note_failure(process, reason)
            case {"failing": _}:
                process.ready = False
            case {"reload": _}:
                self._begin(self._reload_for(process))

    def _note_failure(self, process: Process, reason: str) -> None:
        """It could not load."""
        waited_for = self._settle(process, reason)
        if process not in self._workers:
            if waited_for:
                process.stop()
        elif not any(worker.ready for worker in self._workers):
            self.fail(reason)

    def _note_end(self, pid: int) -> None:
        mark_process_dead(pid)  # type: ignore[no-untyped-call]
        for worker in self._workers:
            if not worker.ready:
                self._settle(worker, "a worker ended")

    def _listen(self) -> list[socket.socket]:
        host, port = self._settings.host, self._settings.port
        listeners = []
        for family, _, _, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            listener = socket.create_server(address[:2], family=family, backlog=2048)
            listener.setblocking(False)
            listeners.append(listener)
        log.info("listening on http://%s:%d with %d workers", host, port, len(self._workers))
        return listeners

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no descriptor is left
                log.warning("no connection accepted: %s", error)
                return
            self._hand_over(connection)

    def _hand_over(self, connection: socket.socket) -> None:
        """Give a connection to the next worker that takes it, ready ones first; or try again."""
        self._turn += 1
        turn = self._turn % len(self._workers)
        in_turn = self._workers[turn:] + self._workers[:turn]
        for worker in sorted(in_turn, key=lambda one: not one.ready):
            if worker.up and worker.send({"connection": True}, connection.fileno()):
                break
        else:
            if not self._over.is_set():
                loop = asyncio.get_running_loop()
                loop.call_later(_HAND_OVER_AGAIN_S, self._hand_over, connection)
                return
        connection.close()

    def _drain(self) -> None:
        self._signals += 1
        if self._signals > 1:
            self._over.set()
            return
        grace_s = self._settings.drain_grace_s
        log.info("draining: still accepting requests for %g s", grace_s)
        for worker in self._workers:
            worker.send({"drain": True})
        asyncio.get_running_loop().call_later(grace_s, self._over.set)

    def _hang_up(self, had_terminal: bool) -> None:  # noqa: FBT001
        if had_terminal and not has_terminal():
            self._drain()
        else:
            self._begin(self._reload())

    async def _load(self) -> None:
        """Decide where inference happens, and tell the workers."""
        place = self._settings.engine
        if place == "shared" or (place == "auto" and _may_use_cuda(self._settings)):
            self._engine, refusal = await self._start_engine(strict=False)
            if refusal == NO_CUDA:
                self._engine = None
            elif refusal:
                self.fail(refusal)
        self._source = self._engine.arguments[0] if self._engine else ""
        for worker in self._workers:
            if worker.up:
                worker.send({"load": self._source})

    async def _start_engine(self, *, strict: bool) -> tuple[Process, str | None]:
        """A process of its own for inference, and why it does not work if it does not."""
        path = str(self._folder / f"engine-{next(self._engines)}")
        arguments = (path, "strict" if strict else "")
        engine = Process(ENGINE, *arguments, receive=self._receive, ended=self._note_end)
        outcome = self._expect(engine)
        run = self._begin(self._keep(engine))
        run.add_done_callback(lambda _: self._settle(engine, "the engine ended"))
        return engine, await outcome

    async def _reload_for(self, worker: Process) -> None:
        worker.send({"reloaded": await self._reload()})

    async def _reload(self) -> str | None:
        """Have all workers load all bundles anew, or none; the reason if none."""
        if self._reloading or self._source is None:
            return "another reload is under way"
        self._reloading = True
        refusal = await (self._reload_engine() if self._engine else self._reload_workers(""))
        self._reloading = False
        if refusal is not None:
            log.error("reload failed: %s", refusal)
        return refusal

    async def _reload_workers(self, source: str) -> str | None:
        if starting := [self._expect(worker) for worker in self._workers if not worker.ready]:
            await asyncio.wait(starting, timeout=_RELOAD_TIMEOUT_S)
        outcomes = [self._expect(worker) for worker in self._workers]
        for worker in self._workers:
            if not worker.ready or not worker.send({"prepare": source}):
                self._settle(worker, "a worker is not ready")
        done, late = await asyncio.wait(outcomes, timeout=_RELOAD_TIMEOUT_S)
        refusals = {str(one.result()) for one in done if one.result() is not None}
        if late:
            refusals.add(f"a worker took longer than {_RELOAD_TIMEOUT_S:g} s")
        self._source = self._source if refusals else source
        for worker in self._workers:
            worker.send({"abort": True} if refusals else {"commit": True})
        return "; ".join(sorted(refusals)) or None

    async def _reload_engine(self) -> str | None:
        """Start another engine beside the first, which computes on until no request needs it."""
        old, (new, refusal) = self._engine, await self._start_engine(strict=True)
        refusal = refusal or await self._reload_workers(new.arguments[0])
        leaving, self._engine = (old, new) if refusal is None else (new, old)
        new.arguments = (new.arguments[0], "")  # another in its place may leave out what is broken
        if leaving:
            leaving.stop()
        return refusal

    def _expect(self, process: Process) -> asyncio.Future[str | None]:
        """What a process will say of its loading: why it cannot, or None."""
        outcome = self._outcomes[process] = asyncio.get_running_loop().create_future()
        return outcome

    def _settle(self, process: Process, refusal: str | None) -> bool:
        """Note what a process said of its loading; whether anybody waits for it."""
        outcome = self._outcomes.pop(process, None)
        if outcome and not outcome.done():
            outcome.set_result(refusal)
        return outcome is not None


def _may_use_cuda(settings: Settings) -> bool:
    return settings.device != "cpu" and CUDA_PROVIDER in onnxruntime.get_available_providers()
