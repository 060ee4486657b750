"""onnxruntime alone, in a process of its own: images a second of one encoder."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from model.bundle import ENCODER, ENCODER_BATCH
from model.cpu import open_session
from model.runtime import BATCH_ROWS

WARM_UP_S = 0.5


def rate_alone(bundle: Path, *, batch: int, seconds: float) -> float:
    """Images a second with the graph, threads and session options that the service takes."""
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.load.alone", bundle, str(batch), str(seconds)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=seconds + 60,
    )
    return float(json.loads(finished.stdout))


def measure(
    bundle: Annotated[Path, typer.Argument()],
    batch: Annotated[int, typer.Argument()],
    seconds: Annotated[float, typer.Argument()],
) -> None:
    """Print the rate."""
    session = open_session(bundle / (ENCODER if batch < BATCH_ROWS else ENCODER_BATCH))
    side = session.get_inputs()[0].shape[-1]
    images = np.random.default_rng(0).random((batch, 1, side, side), dtype=np.float32)
    warm, count = time.perf_counter() + WARM_UP_S, 0
    while time.perf_counter() < warm:
        session.run(["lengths", "poses"], {"images": images})
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        session.run(["lengths", "poses"], {"images": images})
        count += batch
    print(json.dumps(count / elapsed))


if __name__ == "__main__":
    typer.run(measure)
