from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from service.processes.watchdog import HUNG

PROGRAM = """
import asyncio, time
from service.processes.watchdog import Watchdog

async def main():
    Watchdog(
        asyncio.get_running_loop(),
        lambda: {running_s},
        inference_timeout_s={limit_s},
        heartbeat_timeout_s=2,
        send_to_supervisor=lambda reason: print(reason, flush=True),
        leave=lambda: None,
    ).start()
    {body}

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("body", "running_s", "limit_s", "ended"),
    [
        ("time.sleep(60)", 0, 9, (HUNG, "its event loop has not turned for 2 s")),
        ("await asyncio.sleep(60)", 9, 1, (HUNG, "an inference takes longer than 1 s")),
        ("await asyncio.sleep(3.5)", 3600, 60, (0, "")),
        ("await asyncio.sleep(3.5)", 0, 1, (0, "")),
    ],
    ids=["loop", "inference", "inference while the machine was frozen", "healthy"],
)
def test_what_hangs_is_ended(
    pytestconfig: pytest.Config,
    body: str,
    running_s: float,
    limit_s: float,
    ended: tuple[int, str],
) -> None:
    """And nothing else; what counts is the time that the thread has seen."""
    program = textwrap.dedent(PROGRAM).format(body=body, running_s=running_s, limit_s=limit_s)
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=pytestconfig.rootpath,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended == (process.returncode, process.stdout.strip())
