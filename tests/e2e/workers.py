"""The workers of a service that a test started, and the bundle that it may change."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import httpx

from model.bundle import MANIFEST
from tests.processes import PATIENCE_S, PLAIN, WORKER

MODEL = "mnist-compact"
KEY = "a-key-of-tests-alone"
"""Of an administrator."""


class Process(Protocol):
    """What has a process id."""

    @property
    def pid(self) -> int:
        """Its number."""


def few(bundles: Path) -> dict[str, str]:
    """Settings of two workers with one small bundle."""
    return {
        "CAPSNET_BUNDLES": str(bundles),
        "CAPSNET_DEFAULT_MODEL": MODEL,
        "CAPSNET_DEVICE": "cpu",
        "CAPSNET_WORKERS": "2",
    }


def workers(process: Process) -> list[int]:
    """Process ids of a supervisor's workers."""
    pid, found = process.pid, []
    for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):  # it has just ended
            if WORKER.encode() in Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0"):
                found.append(int(one))
    return found


def wait_for(true: Callable[[], object]) -> None:
    """Return when something has become true."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ready_workers(url: httpx.URL | str, key: str = KEY, *, state: str = "ready") -> int:
    """How many workers the service says are ready, or wanted."""
    with suppress(httpx.TransportError):
        text = httpx.get(f"{url}/metrics", headers={"X-API-Key": key}, verify=PLAIN).text
        name = f'capsnet_workers{{state="{state}"}}'
        found = [line for line in text.splitlines() if name in line]
        return int(float(found[0].split()[1])) if found else 0
    return 0


def all_ready(client: httpx.Client) -> None:
    """Return when all workers are ready: others answer 503."""
    url = client.base_url
    wait_for(lambda: 0 < ready_workers(url) == ready_workers(url, state="wanted"))


def change(bundles: Path) -> str:
    """Give the bundle another note, as other weights would; the note."""
    path = bundles / MODEL / MANIFEST
    manifest = json.loads(path.read_text())
    manifest["training"]["note"] = str(time.time_ns())
    path.write_text(json.dumps(manifest))
    return str(manifest["training"]["note"])


def notes(client: httpx.Client, asked: int = 6) -> set[str | None]:
    """What the manifests of the workers say; a connection each, so that workers take turns."""
    url = f"{client.base_url}/models/{MODEL}"
    return {httpx.get(url, verify=PLAIN).json()["training"].get("note") for _ in range(asked)}


@contextmanager
def no_descriptors(pid: int) -> Iterator[None]:
    """Let a process open no more files."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = {int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir()}
    free = next(number for number in range(max(used) + 2) if number not in used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
