"""The well-behaved client: ten requests a second, in a process of its own.

Requests are sent when they are due, whether earlier ones were answered or not: the wait for an
answer is measured too. Every second request has a connection of its own, the others share kept
ones; every third is a photograph, which is decoded elsewhere than a drawing of 28 x 28 pixels.
Every answer's label is checked.
"""

from __future__ import annotations

import io
import subprocess
from dataclasses import dataclass, field

from PIL import Image

from service.pictures import SAMPLES
from tests.attack.generator import Load, encode, finish, start
from tests.attack.wire import Target, request

RATE = 10.0
PATIENCE_S = 10.0


@dataclass
class Report:
    """What the client saw."""

    answered: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    refused: int = 0
    """Of all, those that were answered only after 429 or 503 and the `Retry-After` of that."""
    failures: dict[str, int] = field(default_factory=dict)
    """No answer with the right label, by what came instead."""


def pictures() -> list[tuple[int, bytes, str]]:
    """Label, file and media type of each sample, as it is and as a photograph of 280 x 280."""
    found = []
    for label in range(10):
        content = (SAMPLES / f"{label}.png").read_bytes()
        photograph, large = io.BytesIO(), Image.open(io.BytesIO(content)).resize((280, 280))
        large.save(photograph, "JPEG")
        drawing = (label, content, "image/png")
        found += [drawing, drawing, (label, photograph.getvalue(), "image/jpeg")]
    return found


def start_client(target: Target) -> subprocess.Popen[str]:
    """The well-behaved client, which asks from now on."""
    asked = pictures()
    load = Load(
        port=target.port,
        requests=encode(
            request("/classify", content, kind=kind, key=target.key) for _, content, kind in asked
        ),
        labels=[label for label, _, _ in asked],
        rate=RATE,
        patience_s=PATIENCE_S,
        retries=True,
        half_anew=True,
    )
    return start(load)


def stop_client(client: subprocess.Popen[str]) -> Report:
    """What it saw."""
    seen = finish(client, limit_s=60)
    return Report(seen.right, seen.p50_ms, seen.p99_ms, seen.refused, seen.missed)
