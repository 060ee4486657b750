"""Disposable processes: files are opened and figures drawn where a crash or a hang harms nobody.

A `Pool` has functions run in processes that have limits and no secrets. A process answers with JSON
and raw bytes, which are never unpickled.

Processes are forked by a *fork server* that has imported the modules:
`python -m service.pool SOCKET MEMORY MODULE...`. A fork takes milliseconds and shares what was
imported; starting Python takes half a second, and 20 MB a process.

The pool and a process share a connection. The pool ends the process by closing it: the fork server
kills a process whose connection is closed, whatever the process does.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import pickle
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from service.admission import add_cpu_time, current_caller
from service.errors import Unavailable
from service.shared import Turns

FRAME = struct.Struct("=qqd")
"""The sizes of the two parts of an answer, JSON and raw bytes, and the CPU time in seconds; or
`ENDED` and how the process ended: its exit code, or minus the signal."""
ENDED = -1
_FORK = b"\0"
"""What has the fork server fork a process. The connection of the process comes with it."""
_LOST = "a process that decodes or draws was killed, or cannot be started"
_NO_ANSWER = "the process sent what is no answer"
_KEPT = {"HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ"}
_KEPT_PREFIXES = ("FONTCONFIG_", "MPL", "PYTHON", "XDG_")
"""The variables that a process inherits: none of the service's, which may be keys."""
_MAX_JSON_BYTES, _MAX_RAW_BYTES = 100_000, 500_000_000
"""Bytes of JSON and raw bytes in one answer, at most."""
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""A process with threads cannot be forked safely."""
_PR_SET_PDEATHSIG = 1
"""The number of this option in prctl(2)."""
_MEMORY = Path("/proc/self/statm")
_OUT_OF_MEMORY = Path("/proc/self/oom_score_adj")


class Crashed(Exception):
    """The process crashed or took too much CPU time because of its task."""


class Pool:
    """Runs functions in processes. Callers take turns.

    The fork server starts with `start` or the first task, and again where it was lost. Its
    processes end when it ends, and it ends when this process does. For one event loop at a time.

    Args:
        modules: what the functions need: importing takes CPU time.
        processes: at most so many, each forked when it is first needed.
        limit: so many tasks may wait.
        memory_bytes: what each process may take beyond the modules.
    """

    def __init__(self, *modules: str, processes: int, limit: int, memory_bytes: int) -> None:
        self.turns = Turns(processes, limit=limit)
        self.idle: list[socket.socket] = []
        """Connections of processes that wait for a task."""
        self._arguments = (str(memory_bytes), *modules)
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @property
    def pid(self) -> int:
        """The fork server's process id; 0 if it does not run."""
        return self._server.pid if self._server and self._server.poll() is None else 0

    def start(self) -> None:
        """Start the fork server, if it does not run. It is ready some tenths of a second later."""
        if self.pid:
            return
        self.close()
        self._control, its = socket.socketpair()
        self._control.setblocking(False)
        with its:
            self._server = subprocess.Popen(  # noqa: S603  of this service alone
                [sys.executable, "-m", __name__, str(its.fileno()), *self._arguments],
                env=_clean_environment() | _ONE_THREAD,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # who reads the log may be slow
                pass_fds=[its.fileno()],
            )

    async def run(
        self, cpu_s: float, function: Callable[..., Any], *args: Any
    ) -> tuple[Any, bytes]:
        """Run a function with picklable arguments in a process.

        The request is charged for the CPU time. A call that is cancelled, because its deadline
        passed or nobody waits for it any more, has its process killed.

        Args:
            cpu_s: the CPU time that it may take.
            function: of a module that the fork server imports.
            args: of the function.

        Returns:
            What the function returned: a JSON value, or None, and bytes, which may be empty. The
            process may be in the hands of a file's author: check the result.

        Raises:
            Busy: too many tasks wait, and the caller has most of them.
            Crashed: the process ended because of the task, as it does after `cpu_s`.
            Unavailable: the process was killed or cannot be forked, or the fork server was lost.
            MemoryError: the function raised one.
            RuntimeError: it raised anything else.
        """
        async with self.turns.turn(current_caller()):
            connection, began, taken_s = self._take(), time.monotonic(), cpu_s  # unless it answers
            try:
                task = pickle.dumps((cpu_s, function, args), pickle.HIGHEST_PROTOCOL)
                facts, content, taken_s = await _ask(connection, task)
            except BaseException:
                connection.close()
                raise
            finally:  # by the clock it takes longer, where the machine is busy
                add_cpu_time(min(max(0.0, taken_s), time.monotonic() - began))
            self.idle.append(connection)
        if raised := facts.get("raised"):
            kind = MemoryError if raised == "MemoryError" else RuntimeError
            raise kind(f"{raised}: {facts.get('text')}")
        return facts.get("value"), content

    def end_idle(self) -> None:
        """End the processes that wait for a task."""
        while self.idle:
            self.idle.pop().close()

    def close(self) -> None:
        """End all processes."""
        self.end_idle()
        if self._control and self._server:
            self._control.close()
            self._server.kill()
            self._server.wait()
            self._control = self._server = None

    def _take(self) -> socket.socket:
        """The connection of a process that waits for a task, or of a new one."""
        try:
            self.start()
            while self.idle:
                connection = self.idle.pop()
                if _waits(connection):
                    return connection
                connection.close()
            connection, its = socket.socketpair()
        except OSError as error:  # no descriptors or no memory, whatever the task
            raise _lost() from error
        connection.setblocking(False)
        assert self._control
        with its:
            try:
                socket.send_fds(self._control, [_FORK], [its.fileno()])
            except OSError:  # the fork server is gone, or does not read
                self.close()
        return connection


def _waits(connection: socket.socket) -> bool:
    """Whether a process still waits for a task. Lack of memory may have killed it."""
    with suppress(BlockingIOError):
        connection.recv(1)
        return False  # it sends nothing by itself
    return True


async def _ask(connection: socket.socket, task: bytes) -> tuple[dict[str, Any], bytes, float]:
    """Send a task, and wait for what its function returned or raised, and its CPU time.

    Raises:
        Crashed: the process has ended, or what it sends is no answer.
        Unavailable: the process was killed, which no task does: a machine without memory does. Or
            it cannot be forked, or the fork server was lost.
    """
    try:
        await asyncio.get_running_loop().sock_sendall(connection, task)
        size, raw_size, seconds = FRAME.unpack(await _receive(connection, FRAME.size))
        if size == ENDED:
            was_killed = raw_size == -signal.SIGKILL
            raise _lost() if was_killed else Crashed("the process ended without a result")
        if not (0 <= size <= _MAX_JSON_BYTES and 0 <= raw_size <= _MAX_RAW_BYTES):
            raise Crashed(_NO_ANSWER)
        text = await _receive(connection, size)
        content = await _receive(connection, raw_size)
    except ConnectionError as error:
        raise _lost() from error
    try:
        facts = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise Crashed(_NO_ANSWER) from error
    if not isinstance(facts, dict):
        raise Crashed(_NO_ANSWER)
    return facts, bytes(content), seconds


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


def _lost() -> Unavailable:
    return Unavailable(_LOST, retry_after_s=1)


def _clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }


def main() -> None:
    """Fork a process for each connection that comes, and kill it when the pool closes that.

    The fork server and its processes end with the pool.
    """
    for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sent, signal.SIG_IGN)  # they are the service's to answer: it may be draining
    _, own, memory_bytes, *modules = sys.argv
    for module in modules:
        import_module(module)
    gc.freeze()  # a collection in a child would copy what it shares
    control, connections = socket.socket(fileno=int(own)), dict[int, socket.socket]()
    signal.signal(signal.SIGCHLD, lambda *_: _report_ends(connections))
    while True:
        if not _wait(control, connections):
            continue
        message, descriptors, _, _ = socket.recv_fds(control, len(_FORK), 1)
        if not message:
            break
        for descriptor in descriptors:  # none, if this process has no room for it
            connection = socket.socket(fileno=descriptor)
            others = [control, *connections.values()]
            if pid := _fork(connection, int(memory_bytes), others):
                connections[pid] = connection
    for pid in connections:
        os.kill(pid, signal.SIGKILL)


def _wait(control: socket.socket, connections: dict[int, socket.socket]) -> bool:
    """Wait until the pool closes connections, and kill their processes, or until it sends more.

    Ends of processes are reported meanwhile, and at no other time. Return whether it sends more.
    """
    polling = select.poll()
    polling.register(control, select.POLLIN)
    for connection in connections.values():
        polling.register(connection, 0)  # for its end alone
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    changed = {descriptor for descriptor, _ in polling.poll()}
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    for pid, connection in list(connections.items()):
        if connection.fileno() in changed:
            os.kill(pid, signal.SIGKILL)  # its number is its own until its end is reported
            connections.pop(pid).close()
    return control.fileno() in changed


def _fork(connection: socket.socket, memory_bytes: int, others: list[socket.socket]) -> int:
    """Fork a process that does tasks and has none of the other connections. Return its id."""
    try:
        pid = os.fork()
    except OSError:  # no memory, or too many processes
        connection.close()
        return 0
    if not pid:
        for other in others:
            other.close()
        _work(connection, memory_bytes)
    return pid


def _report_ends(connections: dict[int, socket.socket]) -> None:
    """Tell the pool how processes ended that it did not end, each on its connection."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            if connection := connections.pop(pid, None):
                with connection, suppress(OSError):
                    message = FRAME.pack(ENDED, os.waitstatus_to_exitcode(status), 0)
                    connection.send(message, socket.MSG_DONTWAIT)


def _work(connection: socket.socket, memory_bytes: int) -> None:
    """Do tasks one after the other, until the pool closes the connection."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    _die_with_parent()
    _limit_memory(memory_bytes)
    stream = connection.makefile("rb")
    with suppress(EOFError, OSError):
        while True:
            cpu_s, function, arguments = pickle.load(stream)  # noqa: S301  of the pool
            began = time.process_time()
            text, content = _do(cpu_s, function, arguments)
            del arguments
            taken_s = time.process_time() - began
            connection.sendall(FRAME.pack(len(text), len(content), taken_s) + text)
            connection.sendall(content)
    os._exit(0)


def _do(
    cpu_s: float, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> tuple[bytes, bytes]:
    """Call a function. Return the JSON of its value or its exception, and its raw bytes.

    SIGPROF ends a process that takes longer.
    """
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        result = function(*arguments)
        value, content = result if isinstance(result, tuple) else (None, result)
        if not isinstance(content, bytes | bytearray):
            value, content = result, b""
        text = json.dumps({"value": value})
    except Exception as error:  # noqa: BLE001  raised again by the pool
        content = b""
        text = json.dumps({"raised": type(error).__name__, "text": str(error)[:1000]})
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return text.encode(), content


def _die_with_parent() -> None:
    """End with the process that forked this one, however it ends; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit_memory(further_bytes: int) -> None:
    """Let this process take so much memory beyond what it has; Linux only. It dumps no core."""
    if _MEMORY.exists():
        has_bytes = int(_MEMORY.read_text().split()[0]) * resource.getpagesize()
        _OUT_OF_MEMORY.write_text("1000")  # if the machine has none left: this one first
        resource.setrlimit(resource.RLIMIT_AS, (has_bytes + further_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
