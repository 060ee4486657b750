"""Ray Data beside onnxruntime alone, on all cores: `python -m benchmarks.scoring`.

A short job's time is taken from a long one's, so that starting Ray and its actors does not count.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import ray
import typer

from benchmarks.load.alone import rate_alone
from benchmarks.load.servers import ROOT, SAMPLES
from deploy.ray.score import Pictures, claim, score, start
from deploy.ray.scorer import Wanted
from model.runtime.cpu import cpu_quota

FEW, MANY = 2_000, 14_000
BATCH = 32


def measure(
    bundle: Annotated[str, typer.Option()] = "mnist-attention",
    rounds: Annotated[int, typer.Option()] = 2,
    *,
    poses: Annotated[bool, typer.Option()] = False,
    novelty: Annotated[bool, typer.Option()] = False,
) -> None:
    """Print pictures a second of both, and their ratio, in turn."""
    wanted = Wanted(bundle, poses=poses, novelty=novelty)
    start(None)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(MANY):
            sample = SAMPLES[number % len(SAMPLES)]
            (Path(folder) / f"{number}.png").write_bytes(sample)
        for number in range(rounds):
            seconds = [_job(Path(folder), count, wanted, number) for count in (FEW, MANY)]
            scored = (MANY - FEW) / (seconds[1] - seconds[0])
            path = ROOT / "model" / "bundles" / bundle
            alone = rate_alone(path, batch=BATCH, seconds=4, at_once=cpu_quota())
            print(f"{scored:.0f} /s, onnxruntime alone {alone:.0f}: {scored / alone:.2f}")
    ray.shutdown()


def _job(folder: Path, count: int, wanted: Wanted, number: int) -> float:
    """Seconds of a job of so many pictures."""
    output = folder / f"out-{number}-{count}"
    pictures = Pictures([str(folder / f"{number}.png") for number in range(count)])
    claim(output, wanted)
    began = time.perf_counter()
    score(pictures.read(), output, wanted)
    return time.perf_counter() - began


if __name__ == "__main__":
    typer.run(measure)
