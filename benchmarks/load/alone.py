"""onnxruntime alone, in a process of its own: images a second of one encoder."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from model.runtime.cpu import cpu_quota, open_session
from model.runtime.runtime import BATCH_ROWS

WARM_UP_S = 0.5


def rate_alone(bundle: Path, *, batch: int, seconds: float, at_once: int = 1) -> float:
    """Images a second with the graph that the service takes, and all cores.

    Args:
        bundle: folder.
        batch: images of one inference.
        seconds: of the measurement.
        at_once: concurrent inferences. A calling thread counts as one of the session's threads, so
            the session gets `cpu_quota() - at_once + 1`.
    """
    arguments = (bundle, str(batch), str(seconds), str(at_once))
    finished = subprocess.run(
        [sys.executable, "-m", "benchmarks.load.alone", *arguments],
        stdout=subprocess.PIPE,
        check=True,
        timeout=seconds + 60,
    )
    return float(json.loads(finished.stdout))


def measure(
    bundle: Annotated[Path, typer.Argument()],
    batch: Annotated[int, typer.Argument()],
    seconds: Annotated[float, typer.Argument()],
    at_once: Annotated[int, typer.Argument()],
) -> None:
    """Print the rate."""
    batched = bundle / "encoder.batch.onnx"
    graph = batched if batch >= BATCH_ROWS and batched.exists() else bundle / "encoder.onnx"
    session = open_session(graph, threads=max(1, cpu_quota() - at_once + 1))
    shape = (batch, *session.get_inputs()[0].shape[1:])
    images = np.random.default_rng(0).random(shape, dtype=np.float32)

    def images_per_s(seconds: float) -> float:
        count, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            session.run(["presence", "poses"], {"images": images})
            count += batch
        return count / elapsed

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(images_per_s, [WARM_UP_S] * at_once))
        print(json.dumps(sum(pool.map(images_per_s, [seconds] * at_once))))


if __name__ == "__main__":
    typer.run(measure)
