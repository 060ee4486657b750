"""Ray Data compared with onnxruntime alone, on all cores: `python -m benchmarks.scoring`.

The rate is that between output files, so that starting Ray and its actors does not count.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import pyarrow.parquet as pq
import ray
import typer

from benchmarks.load.alone import rate_alone
from benchmarks.load.servers import ROOT, SAMPLES
from deploy.ray.score import Pictures, claim, score, start
from deploy.ray.scorer import Wanted
from model.runtime.cpu import cpu_quota

PICTURES = 20_000
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
        for number in range(PICTURES):
            sample = SAMPLES[number % len(SAMPLES)]
            (Path(folder) / f"{number}.png").write_bytes(sample)
        for number in range(rounds):
            scored = _rate(Path(folder), wanted, number)
            path = ROOT / "model" / "bundles" / bundle
            alone = rate_alone(path, batch=BATCH, seconds=4, at_once=cpu_quota())
            print(f"{scored:.0f} /s, onnxruntime alone {alone:.0f}: {scored / alone:.2f}")
    ray.shutdown()


def _rate(folder: Path, wanted: Wanted, number: int) -> float:
    """Pictures a second of a job, from its second output file to its last."""
    output = folder / f"out-{number}"
    claim(output, wanted)
    paths = [str(folder / f"{number}.png") for number in range(PICTURES)]
    score(Pictures(paths).read(), output, wanted)
    written = sorted(output.glob("*.parquet"), key=lambda file: file.stat().st_mtime)
    seconds = written[-1].stat().st_mtime - written[1].stat().st_mtime
    return sum(pq.read_metadata(file).num_rows for file in written[2:]) / seconds


if __name__ == "__main__":
    typer.run(measure)
