"""Programs that tests start and wait for."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from model.bundle import MANIFEST

PATIENCE_S = 120
"""How long a test waits for another process, before it fails; machines may be busy."""
_PORTS = itertools.cycle(range(first := 10_100 + os.getpid() % 220 * 100, first + 100))
"""Below 32,768, where Linux begins to give ports to programs that name none."""
Command = Callable[[dict[str, str]], list[str]]
"""Gives what starts the service with some settings."""
NGINX_CONFIG = Path(__file__).parents[1] / "docker" / "nginx.conf"
SOURCE = [sys.executable, "-m", "service"]
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of services without TLS: reading certificates takes 20 ms for each client."""
WORKER = "--multiprocessing-fork"
"""On the command line of a worker."""
_IN_WORKERS = f"""
import sys
if {WORKER!r} in sys.orig_argv:
    import os, pathlib, threading
    from model.runtime import DeviceLostError, Runtime
"""


def free_port() -> int:
    """A TCP port that nobody listens on, and that no other call returns.

    The kernel would give one port to two test processes whose services have not bound it yet. So
    each process counts through a part of the ports that the kernel gives to nobody.
    """
    while True:
        port = next(_PORTS)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


@contextmanager
def running(
    command: Command, environment: dict[str, str], *, probe: str = "/readyz", **more: Any
) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """A service in a process of its own, from when the probe says 200; `more` is for Popen."""
    port = free_port()
    settings = {
        "CAPSNET_DRAIN_GRACE_S": "0",
        "CAPSNET_PORT": str(port),
        **environment,
    }
    process = subprocess.Popen(command(settings), env={**os.environ, **settings}, **more)
    try:
        with open_client(port) as client:
            wait_until_ok(client, process, probe)
            yield process, client
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


def open_client(port: int, *, timeout: float = PATIENCE_S) -> httpx.Client:
    """A patient client of a port of this machine."""
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=timeout, verify=PLAIN)


def wait_until_ok(client: httpx.Client, process: subprocess.Popen[bytes], probe: str) -> None:
    """Return when the probe says 200."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the process ended at its start"
        with suppress(httpx.TransportError):
            if client.get(probe).is_success:
                return
        time.sleep(0.05)
    pytest.fail(f"{probe} was not 200 within {PATIENCE_S} s")


def patch_workers(folder: Path, source: str) -> dict[str, str]:
    """The environment in which each worker first runs some lines, with `Runtime` at hand."""
    text = _IN_WORKERS + textwrap.indent(textwrap.dedent(source), "    ")
    (folder / "sitecustomize.py").write_text(text)
    others = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{others}" if others else str(folder)}


class SlowStorage:
    """Storage of bundles that answers when the test says so.

    Args:
        folder: of the patch, and of files by which the test and the workers talk.
    """

    def __init__(self, folder: Path) -> None:
        self._gate, self._ticket = folder / "gate", folder / "ticket"
        source = f"""
            import time
            from service.processes import snapshots

            plain = snapshots._copy

            def copy(source, *others):
                while source.name == {MANIFEST!r} and pathlib.Path({str(self._gate)!r}).exists():
                    try:
                        pathlib.Path({str(self._ticket)!r}).unlink()
                    except FileNotFoundError:
                        time.sleep(0.02)
                    else:
                        break
                return plain(source, *others)

            snapshots._copy = copy
            """
        self.environment = patch_workers(folder, source)

    def hold(self) -> None:
        """Have the next copy of a manifest wait."""
        self._gate.touch()

    def release_one(self) -> None:
        """Have one manifest copied."""
        self._ticket.touch()

    def release(self) -> None:
        """Have all manifests copied."""
        self._gate.unlink()


def hanging(folder: Path, *, on_the_loop: bool) -> tuple[dict[str, str], Path]:
    """An environment in which the first inference of all never ends, and the file it leaves."""
    stuck = folder / "stuck"
    name = "ServedNet.compute" if on_the_loop else "Runtime.encode"
    imported = "from service.inference.engine import ServedNet" if on_the_loop else ""
    source = f"""
        {imported}
        plain = {name}

        def compute(*arguments, **named):
            path = pathlib.Path({str(stuck)!r})
            if path.exists():
                return plain(*arguments, **named)
            path.touch()
            threading.Event().wait()

        {name} = compute
        """
    return patch_workers(folder, source), stuck


@contextmanager
def nginx(folder: Path, *, upstream: int, config: Path = NGINX_CONFIG) -> Iterator[httpx.Client]:
    """A real nginx with a configuration as it ships, but for its ports and its temporary files.

    Skips the test where there is no nginx.
    """
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if not program:
        pytest.skip("needs nginx (Debian's package nginx-light)")
    port = free_port()
    paths = "".join(f"{name}_temp_path {folder / name};\n" for name in _TEMPORARY)
    text = config.read_text().replace("listen 80;", f"listen 127.0.0.1:{port};")
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{upstream}").replace(
        "http {", "http {\n" + paths
    )
    (folder / "nginx.conf").write_text(text)
    own = f"daemon off; master_process off; pid {folder / 'pid'};"
    command = [program, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", own]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with open_client(port, timeout=60) as client:
            _wait_until_listening(port, process)
            yield client
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextmanager
def prometheus_of(target: str, folder: Path, *, labels: dict[str, str]) -> Iterator[httpx.Client]:
    """A Prometheus of its own that scrapes `target`, HOST:PORT, every second.

    Skips the test where there is none.
    """
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs the program prometheus: install Debian's package of that name")
    port, targets = free_port(), {"targets": [target], "labels": labels}
    scraping = {"job_name": "capsnet", "static_configs": [targets]}
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scraping]}
    (folder / "config.yml").write_text(json.dumps(config))
    process = subprocess.Popen(
        [
            program,
            f"--config.file={folder / 'config.yml'}",
            f"--storage.tsdb.path={folder / 'storage'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            wait_until_ok(client, process, "/-/ready")
            yield client
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


_TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def _wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, "nginx ended at its start"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("nginx did not listen within half a minute")


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
