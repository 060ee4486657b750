"""A server in a process of its own: started, asked until it answers rightly, stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load.client import LABEL, Load, encode

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "runs" / "load"
"""Environments, logs and results; not committed."""
SAMPLES = [(ROOT / "service" / "samples" / f"{label}.png").read_bytes() for label in range(10)]
START_S = 300.0
STOP_S = 20.0


@dataclass(frozen=True)
class Setting:
    """One way to run and ask a server."""

    server: str
    label: str
    """What is particular to this setting."""
    command: tuple[str, ...]
    """`{port}` is filled in."""
    folder: Path
    """Where it is run."""
    variables: Mapping[str, str]
    """`{port}` is filled in here too."""
    form: Callable[[bytes], bytes]
    """A picture to a whole HTTP request."""
    pattern: str = LABEL
    """Finds the label in an answer."""


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    setting: Setting
    port: int
    pid: int
    requests: list[bytes] = field(repr=False)
    """One for each of SAMPLES."""

    def load(self, connections: int, *, seconds: float, warm_up_s: float) -> Load:
        """A load on it: the ten sample digits in turn."""
        return Load(
            port=self.port,
            requests=encode(self.requests),
            labels=[*range(len(SAMPLES))],
            pattern=self.setting.pattern,
            connections=connections,
            warm_up_s=warm_up_s,
            seconds=seconds,
        )


class DidNotStart(Exception):
    """A server ended, or did not give the right answer in time."""


@contextmanager
def running(setting: Setting) -> Iterator[Running]:
    """Start a server, wait until it classifies a sample rightly, and stop it at the end.

    Raises:
        DidNotStart: its log says why.
    """
    port = find_port()
    command = [part.format(port=port) for part in setting.command]
    variables = {name: value.format(port=port) for name, value in setting.variables.items()}
    log = RUNS / "logs" / f"{setting.server.split(maxsplit=1)[0]}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=setting.folder,
            env=_inherited() | variables,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    try:
        server = Running(setting, port, process.pid, [setting.form(one) for one in SAMPLES])
        _wait_until_right(server, process, log)
        yield server
    finally:
        _stop(process)


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep a core busy with another program."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def find_port() -> int:
    """A TCP port of this host that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def ask(port: int, request: bytes, *, timeout_s: float = 5.0) -> bytes:
    """Send one request, read until the server says nothing more for a moment, or closes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(request)
        while chunk := connection.recv(65536):
            answer += chunk
            connection.settimeout(0.2)
            with suppress(TimeoutError):
                while chunk := connection.recv(65536):
                    answer += chunk
            break
    return answer


def resident_mib(pid: int) -> float:
    """Resident memory of a process and of all that it started, in MiB."""
    pages = sum(
        int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in (pid, *descendants(pid))
    )
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _inherited() -> dict[str, str]:
    """This process's environment, without settings of the service."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CAPSNET_") and name not in {"HOST", "PORT"}
    }


def _wait_until_right(server: Running, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    answer = b"nothing"
    label = len(SAMPLES) - 1
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise DidNotStart(f"{server.setting.server} ended at its start; see {log}")
        with suppress(OSError):
            answer = ask(server.port, server.requests[label])
            found = re.search(server.setting.pattern.encode(), answer)
            if found and int(found[1]) == label:
                return
        time.sleep(0.1)
    raise DidNotStart(f"{server.setting.server} answered {answer[-200:]!r}; see {log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a server and everything that it started."""
    family = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    for pid in [process.pid, *family] if process.poll() is None else family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def descendants(pid: int) -> list[int]:
    """Process ids of all children, and of theirs."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found, unseen = [], [pid]
    while unseen:
        offspring = children.get(unseen.pop(), [])
        found += offspring
        unseen += offspring
    return found
