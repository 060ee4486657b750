"""Untrusted, complicated input is opened in a process that may die, and that has no secrets.

It answers with JSON and raw bytes, which are never unpickled. A pool of such processes is for one
event loop at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from service.admission import charge_time, current_caller
from service.errors import Unavailable
from service.pool.__main__ import FRAME, READY
from service.shared import Turns

_NO_PROCESS = "a process that decodes or draws cannot be started"
_NO_ANSWER = "the process sent what is no answer"
_KEPT = {"HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ"}
_KEPT_PREFIXES = ("FONTCONFIG_", "MPL", "PYTHON", "XDG_")
"""The variables that a process inherits: none of the service's, which may be keys."""
_MAX_JSON_BYTES, _MAX_RAW_BYTES = 100_000, 500_000_000
"""Bytes of JSON and raw bytes in one answer, at most."""
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""A process with threads cannot be forked safely."""


class Crashed(Exception):
    """The process crashed or took too much CPU time because of its task."""


@dataclass
class Child:
    """A forked process."""

    number: int
    connection: socket.socket
    """The connection that carries tasks to the process and results back."""
    parent: int
    """The fork server's process id."""
    is_ready: bool = False
    """Whether the process is known to have started: forking may fail."""

    def runs(self) -> bool:
        """Whether the process is waiting for a task. Without memory it may have been killed."""
        with suppress(BlockingIOError):
            self.connection.recv(1)
            return False  # it sends nothing by itself
        return True


class ForkServer:
    """Forks processes that have imported some modules, and kills them: see `service.pool.__main__`.

    It is started before it is needed, or with the first fork, and again where it was lost. Its
    processes end when it ends, and it ends when this process does.

    Args:
        modules: what its processes need. A pool whose processes run code of others has to find it
            here: importing takes CPU time.
        memory_bytes: what each process may take beyond that.
    """

    def __init__(self, *modules: str, memory_bytes: int) -> None:
        self._arguments = (str(memory_bytes), *modules)
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @property
    def pid(self) -> int:
        """The fork server's process id; 0 if it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else 0

    def start(self) -> None:
        """Start the fork server, if it does not run. It is ready some tenths of a second later."""
        if self.pid:
            return
        self.close()
        self._control, its = socket.socketpair()
        self._control.setblocking(False)
        with its:
            self._process = subprocess.Popen(  # noqa: S603  of this service alone
                [sys.executable, "-m", __package__, str(its.fileno()), *self._arguments],
                env=_clean_environment() | _ONE_THREAD,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # who reads the log may be slow
                pass_fds=[its.fileno()],
            )

    def fork(self) -> Child:
        """A new process."""
        self.start()
        ours, its = socket.socketpair()
        ours.setblocking(False)
        number = next(self._numbers)
        with its:
            self._tell(number, its.fileno())
        return Child(number, ours, self.pid)

    def kill(self, child: Child) -> None:
        """End a process at once, or forget one that has ended."""
        child.connection.close()
        if child.parent == self.pid:
            self._tell(child.number)

    async def end(self, child: Child) -> int:
        """Wait for a process that closed its connection; its exit code, or minus the signal.

        Raises:
            ConnectionError: the fork server was lost, and its processes with it.
        """
        child.connection.close()
        if child.parent != self.pid:
            raise ConnectionResetError
        ours, its = socket.socketpair()
        with ours:
            ours.setblocking(False)
            with its:
                self._tell(child.number, its.fileno())
            (status,) = struct.unpack("=i", await _receive(ours, 4))
        return int(status)

    def close(self) -> None:
        """End all processes."""
        if self._control and self._process:
            self._control.close()
            self._process.kill()
            self._process.wait()
            self._control = self._process = None

    def _tell(self, number: int, *descriptors: int) -> None:
        assert self._control
        try:
            socket.send_fds(self._control, [struct.pack("=i", number)], descriptors)
        except OSError:  # it is gone, or does not read: its processes go with it
            assert self._process
            self._process.kill()
            self._process.wait()


class Pool:
    """Runs functions in processes of a fork server. Callers take turns.

    Args:
        fork_server: forks the processes, each when it is first needed.
        processes: at most so many.
        limit: so many tasks may wait.
    """

    def __init__(self, fork_server: ForkServer, *, processes: int, limit: int) -> None:
        self.turns = Turns(processes, limit=limit)
        self.fork_server = fork_server
        self.idle: list[Child] = []

    async def run(
        self, cpu_s: float, function: Callable[..., Any], *args: Any, file: bytes = b""
    ) -> Any:
        """Run a function with a file, if given, and picklable arguments in a process.

        The request is charged for the CPU time. A call that is cancelled, because its deadline
        passed or nobody waits for it any more, has its process killed.

        Args:
            cpu_s: the CPU time that it may take.
            function: of a module that the fork server imports.
            args: of the function.
            file: the function's first argument, if there is one.

        Returns:
            The function's result: a JSON value, bytes, or a pair of both. The process may be in the
            hands of the file's author: check the result.

        Raises:
            Busy: too many tasks wait, and the caller has most of them.
            Crashed: the process ended because of the task, as it does after `cpu_s`.
            Unavailable: the process was killed or cannot be forked, or the fork server was lost.
            MemoryError: the function raised one.
            RuntimeError: it raised anything else.
        """
        async with self.turns.turn(current_caller()):
            child, began, taken_s = self._take(), time.monotonic(), cpu_s
            try:
                task = pickle.dumps((cpu_s, function, args, len(file)), pickle.HIGHEST_PROTOCOL)
                facts, content, taken_s = await _ask(child, task, file)
            except ConnectionError as lost:
                raise await self._explain(child) from lost
            except BaseException:
                self.fork_server.kill(child)
                raise
            finally:  # by the clock it takes longer, where the machine is busy
                charge_time(min(max(0.0, taken_s), time.monotonic() - began))
            self.idle.append(child)
        if raised := facts.get("raised"):
            kind = MemoryError if raised == "MemoryError" else RuntimeError
            raise kind(f"{raised}: {facts.get('text')}")
        value = facts.get("value")
        if not content:
            return value
        return content if value is None else (value, content)

    def close(self) -> None:
        """End the processes, also those of other pools of this fork server."""
        self.fork_server.close()
        while self.idle:
            self.idle.pop().connection.close()

    async def _explain(self, child: Child) -> Exception:
        """Explain why a process ended before it had a result.

        No task sends SIGKILL: a machine without memory does.
        """
        if not child.is_ready:
            self.fork_server.kill(child)
            return _unavailable(_NO_PROCESS)
        try:
            status = await self.fork_server.end(child)
        except OSError:  # or no descriptor is left to ask
            return _unavailable("the processes that decode and draw were lost")
        if status == -signal.SIGKILL:
            return _unavailable("a process that decodes or draws was killed")
        return Crashed("the process ended before it had a result")

    def _take(self) -> Child:
        """A process that waits for a task, or a new one."""
        while self.idle:
            child = self.idle.pop()
            if child.parent == self.fork_server.pid and child.runs():
                return child
            self.fork_server.kill(child)
        try:
            return self.fork_server.fork()
        except OSError as error:  # no descriptors or no memory, whatever the task
            raise _unavailable(_NO_PROCESS) from error


def _unavailable(reason: str) -> Unavailable:
    return Unavailable(reason, retry_after_s=1)


async def _ask(child: Child, task: bytes, file: bytes) -> tuple[dict[str, Any], bytes, float]:
    """Send a task, and wait for what its function returned or raised, and its CPU time.

    Raises:
        ConnectionError: the process has ended.
        Crashed: what it sends is no answer.
    """
    if not child.is_ready:
        await _receive(child.connection, len(READY))
        child.is_ready = True
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(child.connection, task)
    await loop.sock_sendall(child.connection, file)
    *sizes, seconds = FRAME.unpack(await _receive(child.connection, FRAME.size))
    if sizes[0] > _MAX_JSON_BYTES or sizes[1] > _MAX_RAW_BYTES:
        raise Crashed(_NO_ANSWER)
    text, content = [await _receive(child.connection, size) for size in sizes]
    try:
        facts = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise Crashed(_NO_ANSWER) from error
    if not isinstance(facts, dict):
        raise Crashed(_NO_ANSWER)
    return facts, bytes(content), seconds


def _clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }


async def _receive(connection: socket.socket, size: int) -> bytearray:
    loop = asyncio.get_running_loop()
    received = bytearray(size)
    rest = memoryview(received)
    while rest:
        count = await loop.sock_recv_into(connection, rest)
        if not count:
            raise ConnectionResetError
        rest = rest[count:]
    return received
