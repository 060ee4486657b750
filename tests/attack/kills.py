"""Attacks by who may send signals, or memory that runs out."""

from __future__ import annotations

import asyncio
import os
import signal

from tests.attack.cases import Site, attack
from tests.attack.service import descendants, ended

GONE_WITHIN_S = 15


@attack("killed supervisor", allowed=("all ended", "no files left"), fatal=True)
async def killed_supervisor(site: Site) -> None:
    """SIGKILL leaves neither processes nor files behind."""
    family = [site.service.pid, *descendants(site.service.pid)]
    os.kill(site.service.pid, signal.SIGKILL)
    loop = asyncio.get_running_loop()
    until = loop.time() + GONE_WITHIN_S
    while not ended(family[1:]) and loop.time() < until:  # noqa: ASYNC110  not our children
        await asyncio.sleep(0.1)
    site.outcomes["all ended" if ended(family[1:]) else "processes left"] += 1
    left = [one.name for one in site.service.folder.iterdir() if one.name.startswith("capsnet-")]
    site.outcomes["files left" if left else "no files left"] += 1
