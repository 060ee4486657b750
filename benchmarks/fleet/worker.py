"""What one worker answers a second, and what a picture costs it: the numbers to multiply."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.load.alone import rate_alone
from benchmarks.load.catalogue import CORES, ours
from benchmarks.load.client import generate
from benchmarks.load.servers import Running, Setting, descendants, running
from benchmarks.load.tensors import BUNDLES, IMAGES, LABEL, request

ALONE = {"CAPSNET_WORKERS": "1", "CAPSNET_THREADS": "1", "CAPSNET_ACCESS_LOG": "false"}
"""A worker that has one core."""
SATURATING = 64
"""Connections with a picture a request."""
FEW = 4
"""Connections with a tensor of 32 images a request."""


class Rates(NamedTuple):
    """Of one bundle."""

    bundle: str
    core: float
    """Images a second of onnxruntime alone, a core, in batches of 32."""
    pictures: float
    """Pictures a second, one a request."""
    picture_ms: float
    """Processor time of one."""
    tensors: float
    """Images a second, 32 a request, as bytes."""
    tensor_ms: float


def measure_rates(seconds: float) -> Iterator[Rates]:
    """Measure each bundle."""
    for bundle in BUNDLES:
        core = rate_alone(bundle, batch=IMAGES, seconds=seconds, at_once=int(CORES)) / int(CORES)
        setting = ours(bundle, ALONE)
        pictures = _rate(setting, SATURATING, seconds)
        form = partial(request, f"/v2/models/{bundle.name}/infer")
        tensors = _rate(replace(setting, form=form, pattern=LABEL), FEW, seconds, images=IMAGES)
        yield Rates(bundle.name, core, *pictures, *tensors)


def _rate(
    setting: Setting, connections: int, seconds: float, *, images: int = 1
) -> tuple[float, float]:
    with running(setting) as server:
        began = _processor_s(server)
        outcome = generate(server.load(connections, seconds=seconds, warm_up_s=1))
        spent = _processor_s(server) - began
    assert not outcome.wrong
    return images * outcome.rate, 1000 * spent / (images * outcome.statuses["200"])


def _processor_s(server: Running) -> float:
    """Of the service's processes so far."""
    ticks = 0
    for pid in (server.pid, *descendants(server.pid)):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
