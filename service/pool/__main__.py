"""`python -m service.pool SOCKET MEMORY MODULE...`: forks processes that have imported the modules.

A fork takes milliseconds and shares what was imported; starting Python takes half a second, and
20 MB a process. So a process that is stuck can be killed at little cost, and often.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

Task = tuple[float, Callable[..., Any], tuple[Any, ...], int]
"""Most seconds of CPU time, a function, its arguments, and the size of the file that precedes them.
"""
FRAME = struct.Struct("=QQd")
"""The sizes of the two parts of an answer, JSON and raw bytes, and the CPU time in seconds."""
READY = b"r"
"""The message of a process that is ready for a task."""
_PR_SET_PDEATHSIG = 1
"""The number of this option in prctl(2)."""
_MEMORY = Path("/proc/self/statm")
_OUT_OF_MEMORY = Path("/proc/self/oom_score_adj")


def main() -> None:
    """Fork and kill processes at the pool's request, and end with it."""
    for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sent, signal.SIG_IGN)  # they are the service's to answer: it may be draining
    _, own, memory_bytes, *modules = sys.argv
    for module in modules:
        import_module(module)
    gc.freeze()  # a collection in a child would copy what it shares
    control, pids = socket.socket(fileno=int(own)), dict[int, int]()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 4, 1)
        if not message:
            break
        (number,) = struct.unpack("=i", message)
        if number in pids:
            status = _kill(pids.pop(number))
            for descriptor in descriptors:  # the pool asks how it ended
                with socket.socket(fileno=descriptor) as asking, suppress(OSError):
                    asking.sendall(struct.pack("=i", status))
            continue
        if not descriptors:  # it could not be forked
            continue
        with socket.socket(fileno=descriptors[0]) as connection, suppress(OSError):
            pid = os.fork()  # no memory, or too many processes: the pool sees its connection close
            if not pid:
                control.close()
                _work(connection, int(memory_bytes))
            pids[number] = pid
    for pid in pids.values():
        _kill(pid)


def _kill(pid: int) -> int:
    """End a process, or find how it ended: its exit code, or minus the signal.

    One that has ended by itself kept its number until now.
    """
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _work(connection: socket.socket, memory_bytes: int) -> None:
    """Report that this process runs, and do tasks one after the other.

    It ends when the pool closes its connection.
    """
    die_with_parent()
    limit_memory(memory_bytes)
    stream = connection.makefile("rb")
    with suppress(EOFError, OSError):
        connection.sendall(READY)
        while True:
            task: Task = pickle.load(stream)  # noqa: S301  of the process that started this one
            cpu_s, function, arguments, size = task
            file = (stream.read(size),) if size else ()
            began = time.process_time()
            text, content = _do(cpu_s, function, (*file, *arguments))
            del file
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


def die_with_parent() -> None:
    """End with the process that forked this one, however it ends; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def limit_memory(further_bytes: int) -> None:
    """Let this process take so much memory beyond what it has; Linux only."""
    if _MEMORY.exists():
        has_bytes = int(_MEMORY.read_text().split()[0]) * resource.getpagesize()
        _OUT_OF_MEMORY.write_text("1000")  # if the machine has none left: this one first
        resource.setrlimit(resource.RLIMIT_AS, (has_bytes + further_bytes,) * 2)


if __name__ == "__main__":
    main()
