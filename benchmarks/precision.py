"""The encoder in 8 bits next to float32: CPU time of an image on one thread, in turn."""

from __future__ import annotations

import time
from statistics import median
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import model
from model.bundle import MANIFEST, Bundle
from model.bundle.manifest import EIGHT_BITS
from model.preprocess import Floats
from model.runtime import CpuPrecision, Runtime

PRECISIONS: tuple[CpuPrecision, CpuPrecision] = ("float32", "int8")
BATCHES = (1, 32)
_TURN_S = 0.1

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def compare(
    bundles: Annotated[list[str] | None, typer.Argument(help="Names; by default all.")] = None,
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each precision.")] = 9,
) -> None:
    """Let both precisions take turns and print, for each bundle, how much faster 8 bits are."""
    heads = [f"{what} at {batch}" for batch in BATCHES for what in ("ms", "int8 ms", "ratio")]
    table = Table("bundle", *heads, title=f"CPU time of an image, one thread, {rounds} rounds")
    for path in sorted(model.SHIPPED.glob(f"*/{MANIFEST}")):
        bundle = Bundle.open(path.parent)
        if EIGHT_BITS in bundle.manifest.graphs and bundle.manifest.name in (
            bundles or [bundle.manifest.name]
        ):
            cells = [cell for batch in BATCHES for cell in measure(bundle, batch, rounds)]
            table.add_row(bundle.manifest.name, *cells)
    Console(width=120).print(table)


def measure(bundle: Bundle, batch: int, rounds: int) -> tuple[str, str, str]:
    """Milliseconds of an image in each precision, and the ratio with its range."""
    shape = (batch, *bundle.manifest.image_shape)
    images = np.random.default_rng(0).random(shape, dtype=np.float32)
    runtimes = [Runtime(bundle, device="cpu", threads=1, cpu_precision=one) for one in PRECISIONS]
    seconds: list[list[float]] = [[], []]
    for number in range(rounds):
        for turn in (0, 1) if number % 2 else (1, 0):
            seconds[turn].append(_seconds(runtimes[turn], images) / batch)
    full, eight = seconds
    ratios = [one / other for one, other in zip(full, eight, strict=True)]
    return (
        f"{1000 * median(full):.3f}",
        f"{1000 * median(eight):.3f}",
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
    )


def _seconds(runtime: Runtime, images: Floats) -> float:
    """CPU seconds of one batch, over some runs."""
    began, runs = time.process_time(), 0
    while time.process_time() - began < _TURN_S or not runs:
        runtime.encode(images)
        runs += 1
    return (time.process_time() - began) / runs


if __name__ == "__main__":
    app()
