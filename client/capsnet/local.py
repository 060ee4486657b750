"""A service of one bundle on this machine, where the service is installed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import httpx

from capsnet.errors import Unreachable

SERVICE = "service"
"""The package of the distribution capsnet-service."""
_START_S, _STOP_S = 120.0, 10.0
_KEPT = ("CAPSNET_DEVICE", "CAPSNET_THREADS", "CAPSNET_CUDA_")
"""Settings that a local service takes from its user's environment."""


class NoLocalService(Unreachable):
    """The service is not installed here, or cannot serve the bundle."""


@contextmanager
def serve(bundle: str) -> Iterator[str]:
    """Start a service of one bundle, yield its address, and stop it at the end of the `with`.

    Args:
        bundle: the folder of a bundle, or the name of one that ships.

    Raises:
        NoLocalService: the service is not installed, or cannot serve this.
    """
    if find_spec(SERVICE) is None:
        raise NoLocalService(
            "a local bundle needs the service's package (capsnet-service) in this environment"
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {**_bundle_settings(bundle), "CAPSNET_PORT": str(port)}
    inherited = {name: value for name, value in os.environ.items() if _is_inherited(name)}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603  the service of this environment
            [sys.executable, "-m", SERVICE],
            env={**inherited, **settings},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(url, process, log)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_inherited(name: str) -> bool:
    return not name.startswith("CAPSNET_") or name.startswith(_KEPT)


def _bundle_settings(bundle: str) -> dict[str, str]:
    """The service's settings with which it loads only this bundle."""
    from model import open_bundle  # noqa: PLC0415  of the service's distribution
    from model.bundle import BundleError  # noqa: PLC0415

    try:
        opened = open_bundle(bundle)
    except BundleError as error:
        raise NoLocalService(str(error)) from error
    folder = Path(opened.path).resolve()
    return {
        "CAPSNET_HOST": "127.0.0.1",
        "CAPSNET_WORKERS": "1",
        "CAPSNET_DRAIN_GRACE_S": "0",
        "CAPSNET_BUNDLES": str(folder.parent),
        "CAPSNET_MODELS": json.dumps([folder.name]),
        "CAPSNET_DEFAULT_MODEL": opened.manifest.name,
    }


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    end = time.monotonic() + _START_S
    with httpx.Client(base_url=url, trust_env=False) as client:
        while time.monotonic() < end and process.poll() is None:
            if _is_ready(client):
                return
            time.sleep(0.05)
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines() or ["no reason given"]
    raise NoLocalService(f"the local service did not start: {lines[-1]}")


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.TransportError:
        return False
