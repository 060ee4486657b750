"""Attacks by who may send signals, or memory that runs out."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress
from pathlib import Path

from tests.attack import files
from tests.attack.cases import Site, attack
from tests.attack.heads import SEVEN
from tests.attack.service import descendants, ended
from tests.attack.wire import request
from tests.attack.work import PNG

GONE_WITHIN_S = 15


@attack("a killed template", allowed=(200, 503, 504), required=(200,))
async def killed_template(site: Site) -> None:
    """What forks processes that decode or draw: neither pictures nor drawings are at fault."""
    requests = [request("/classify", files.square_png(2_000))]
    requests += [request("/routing?scale=8", SEVEN, headers=PNG)]
    asking = asyncio.ensure_future(site.flood(requests))
    await asyncio.wait([asking], timeout=site.seconds / 2)
    of_pools = [pid for pid in descendants(site.service.pid) if _is_of_pool(pid)]
    offspring = {child for pid in of_pools for child in descendants(pid)}
    template = random.choice([pid for pid in of_pools if pid not in offspring])  # noqa: S311
    os.kill(template, signal.SIGKILL)
    await asking


def _is_of_pool(pid: int) -> bool:
    with suppress(OSError):
        return b"service.pool" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


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
