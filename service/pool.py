"""Disposable processes: files are opened and figures drawn where a crash or a hang harms nobody.

A `Pool` has functions run in processes that have limits and no secrets, and that are killed if they
hang. A process answers with JSON and raw bytes, which are never unpickled.

Processes are forked by a *fork server* that has imported the modules:
`python -m service.pool SOCKET MEMORY MODULE...`. A fork takes milliseconds and shares what was
imported; starting Python takes half a second, and 20 MB a process.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
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
_PID = struct.Struct("=i")
"""The first message of a process, and the message that has the fork server kill it. `_FORK` comes
with the connection of a new process."""
_FORK = 0
_NO_PROCESS = "a process that decodes or draws cannot be started"
_KILLED = "a process that decodes or draws was killed"
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


@dataclass
class Child:
    """A forked process."""

    connection: socket.socket
    """Carries tasks to the process and results back."""
    control: socket.socket
    """The connection to the fork server."""
    pid: int = 0
    """0 until the process is known to run: forking may fail."""

    def runs(self) -> bool:
        """Whether it still lives and waits for a task. Lack of memory may have killed it."""
        with suppress(BlockingIOError):
            self.connection.recv(1)
            return False  # it sends nothing by itself
        return True


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
        self.idle: list[Child] = []
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
            child, began, taken_s = self._take(), time.monotonic(), cpu_s  # unless it answers
            try:
                task = pickle.dumps((cpu_s, function, args), pickle.HIGHEST_PROTOCOL)
                facts, content, taken_s = await _ask(child, task)
            except BaseException:
                self._kill(child)
                raise
            finally:  # by the clock it takes longer, where the machine is busy
                add_cpu_time(min(max(0.0, taken_s), time.monotonic() - began))
            self.idle.append(child)
        if raised := facts.get("raised"):
            kind = MemoryError if raised == "MemoryError" else RuntimeError
            raise kind(f"{raised}: {facts.get('text')}")
        return facts.get("value"), content

    def end_idle(self) -> None:
        """End the processes that wait for a task."""
        while self.idle:
            self.idle.pop().connection.close()

    def close(self) -> None:
        """End all processes."""
        self.end_idle()
        if self._control and self._server:
            self._control.close()
            self._server.kill()
            self._server.wait()
            self._control = self._server = None

    def _take(self) -> Child:
        """A process that waits for a task, or a new one."""
        try:
            self.start()
            while self.idle:
                child = self.idle.pop()
                if child.runs():
                    return child
                self._kill(child)
            assert self._control
            ours, its = socket.socketpair()
            ours.setblocking(False)
            child = Child(ours, self._control)
            with its:
                self._tell(child, _FORK, its.fileno())
        except OSError as error:  # no descriptors or no memory, whatever the task
            raise _unavailable(_NO_PROCESS) from error
        return child

    def _kill(self, child: Child) -> None:
        """End a process at once, or forget one that has ended."""
        child.connection.close()
        if child.pid:
            self._tell(child, child.pid)

    def _tell(self, child: Child, message: int, *descriptors: int) -> None:
        """Send a message to the fork server of a process, unless that was lost."""
        if child.control is not self._control:
            return
        try:
            socket.send_fds(self._control, [_PID.pack(message)], descriptors)
        except OSError:  # it is gone, or does not read
            self.close()


async def _ask(child: Child, task: bytes) -> tuple[dict[str, Any], bytes, float]:
    """Send a task, and wait for what its function returned or raised, and its CPU time.

    Raises:
        Crashed: the process has ended, or what it sends is no answer.
        Unavailable: the process was killed, which no task does: a machine without memory does. Or
            it cannot be forked, or the fork server was lost.
    """
    try:
        if not child.pid:
            (child.pid,) = _PID.unpack(await _receive(child.connection, _PID.size))
        await asyncio.get_running_loop().sock_sendall(child.connection, task)
        size, raw_size, seconds = FRAME.unpack(await _receive(child.connection, FRAME.size))
        if size == ENDED:
            child.pid = 0
            lost = raw_size == -signal.SIGKILL
            raise _unavailable(_KILLED) if lost else Crashed("the process ended without a result")
        if not (0 <= size <= _MAX_JSON_BYTES and 0 <= raw_size <= _MAX_RAW_BYTES):
            raise Crashed(_NO_ANSWER)
        text = await _receive(child.connection, size)
        content = await _receive(child.connection, raw_size)
    except ConnectionError as error:
        raise _unavailable(_KILLED if child.pid else _NO_PROCESS) from error
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


def _unavailable(reason: str) -> Unavailable:
    return Unavailable(reason, retry_after_s=1)


def _clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }


def main() -> None:
    """Fork and kill processes at the pool's request, and end with it."""
    for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sent, signal.SIG_IGN)  # they are the service's to answer: it may be draining
    _, own, memory_bytes, *modules = sys.argv
    for module in modules:
        import_module(module)
    gc.freeze()  # a collection in a child would copy what it shares
    control, connections = socket.socket(fileno=int(own)), dict[int, socket.socket]()
    signal.signal(signal.SIGCHLD, lambda *_: _report_ends(connections))
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, _PID.size, 1)
        if not message:
            break
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        (pid,) = _PID.unpack(message)
        if pid in connections:
            os.kill(pid, signal.SIGKILL)  # its number is its own until its end is reported
        for descriptor in descriptors:
            connection = socket.socket(fileno=descriptor)
            others = [control, *connections.values()]
            if pid := _fork(connection, int(memory_bytes), others):
                connections[pid] = connection
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    for pid in connections:
        os.kill(pid, signal.SIGKILL)


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
    """Tell the pool how processes ended, each on its connection, which ends then."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            with connections.pop(pid) as connection, suppress(OSError):
                message = FRAME.pack(ENDED, os.waitstatus_to_exitcode(status), 0)
                connection.send(message, socket.MSG_DONTWAIT)


def _work(connection: socket.socket, memory_bytes: int) -> None:
    """Send this process's id, and do tasks one after the other.

    It ends when the pool closes its connection.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    _die_with_parent()
    _limit_memory(memory_bytes)
    stream = connection.makefile("rb")
    with suppress(EOFError, OSError):
        connection.sendall(_PID.pack(os.getpid()))
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
