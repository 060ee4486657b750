"""Clusters of Ray on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.processes import PATIENCE_S, free_port, wait_until_ok

BIN = Path(sys.executable).parent


class Cluster(NamedTuple):
    """Where a cluster is."""

    address: str
    """For drivers."""
    dashboard: str
    """For `serve deploy`."""
    pid: int


@contextmanager
def cluster(folder: Path, *, cpus: int) -> Iterator[Cluster]:
    """A cluster as `ray start --head` makes it, its log in a folder."""
    port, dashboard = free_port(), free_port()
    start = [BIN / "ray", "start", "--head", "--block", f"--port={port}", f"--num-cpus={cpus}"]
    more = [f"--dashboard-port={dashboard}", "--object-store-memory=100000000"]
    own = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    with (folder / "cluster.log").open("wb") as log:
        process = subprocess.Popen([*start, *more], env=own, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{dashboard}", timeout=5) as client:
            headers = {"Authorization": f"Bearer {os.environ['RAY_AUTH_TOKEN']}"}
            client.headers.update(headers)
            wait_until_ok(client, process, "/api/version")
            yield Cluster(f"127.0.0.1:{port}", str(client.base_url), process.pid)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
