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


@attack("a killed fork server", allowed=(200, 503, 504), required=(200,))
async def killed_fork_server(site: Site) -> None:
    """What forks processes that decode or draw: neither pictures nor drawings are at fault."""
    asking = await _ask_pools(site)
    fork_servers, _ = _of_pools(site)
    os.kill(random.choice(fork_servers), signal.SIGKILL)  # noqa: S311
    await asking


@attack("killed decoders", allowed=(200, 503, 504), required=(200,))
async def killed_decoders(site: Site) -> None:
    """As a machine without memory kills them first: their pictures are not at fault."""
    asking = await _ask_pools(site)
    _, children = _of_pools(site)
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await asking


async def _ask_pools(site: Site) -> asyncio.Future[None]:
    """Half of a flood of pictures and drawings; what ends with the rest of it."""
    requests = [request("/classify", files.square_png(2_000))]
    requests += [request("/routing?scale=8", SEVEN, headers=PNG)]
    asking = asyncio.ensure_future(site.flood(requests))
    await asyncio.wait([asking], timeout=site.seconds / 2)
    return asking


def _of_pools(site: Site) -> tuple[list[int], list[int]]:
    """The fork servers, and the processes that they forked."""
    pids = [pid for pid in descendants(site.service.pid) if _is_of_pool(pid)]
    children = {child for pid in pids for child in descendants(pid)}
    return [pid for pid in pids if pid not in children], sorted(children)


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
