"""`make serve`, as people start and end it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import QUICK
from tests.processes import PATIENCE_S, free_port, open_client, wait_until_ok

ROOT = Path(__file__).parents[2]
source_alone = pytest.mark.usefixtures("source_alone")


@source_alone
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_killing_make_serve_ends_the_service(sig: signal.Signals, tmp_path: Path) -> None:
    """No process of it stays on the port. Ctrl-C reaches all of them, SIGTERM make alone."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    port, own = free_port(), f"{tmp_path}/.serve"
    ready_made = ["-o", own, "-o", "site/index.html"]
    process = subprocess.Popen(
        [make, "serve", f"VENV={tmp_path}", f"PORT={port}", *ready_made],
        cwd=ROOT,
        env={**os.environ, **QUICK, "CAPSNET_DRAIN_GRACE_S": "0"},
        start_new_session=True,
    )
    with open_client(port) as client:
        wait_until_ok(client, process, "/readyz")
        if sig == signal.SIGINT:  # as a terminal sends it; make passes on SIGTERM only
            os.killpg(process.pid, sig)
        else:
            process.send_signal(sig)
        process.wait(timeout=PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                client.get("/livez")
            except httpx.TransportError:
                return
            assert time.monotonic() < deadline, "the service is still there"
            time.sleep(0.1)
