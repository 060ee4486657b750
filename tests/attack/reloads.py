"""Attacks by who may write bundles, and by who may have them loaded."""

from __future__ import annotations

import asyncio
import shutil

from tests.attack.cases import Site, attack
from tests.attack.service import ADMIN_KEY, ROOT
from tests.attack.wire import request

MODEL = "mnist-compact"
CHANGES = ("chain-functions", "take-memory", "inflate-neighbours")
"""Some of `tests.attack.bundles.HOSTILE`; `tests/e2e/test_hostile_bundles.py` tries all."""


@attack("hostile bundles", door="admin", allowed=(409,), required=(409,))
async def hostile_bundles(site: Site) -> None:
    """Bundles that crash or fill what loads them, each reloaded once."""
    from tests.attack.bundles import HOSTILE, sign  # noqa: PLC0415  onnx takes long to import

    evil = site.service.bundles / "evil"
    reload = request("/models/reload", method="POST", key=ADMIN_KEY)
    for name in CHANGES:
        shutil.copytree(ROOT / "model" / "bundles" / MODEL, evil)
        sign(evil, name="evil")
        await asyncio.to_thread(HOSTILE[name], evil)
        await site.send(reload)
        shutil.rmtree(evil)
