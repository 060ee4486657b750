"""Encoder in onnxruntime against a straightforward export, on the CPU: images per second.

Both hold the same random weights, which do not matter for speed, and must give the same answers.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
import typer
from onnxruntime import InferenceSession
from rich.console import Console
from rich.table import Table

from benchmarks.straightforward import StraightforwardCapsNet, write_graph
from model.capsnet.dynamic import DynamicCapsNet, DynamicConfig
from model.preprocess import Floats
from model.runtime.cpu import cpu_quota, open_session
from model.runtime.runtime import BATCH_ROWS
from training.graphs import round_weights, write_graphs
from training.recipes import PRESETS

SIZES: dict[str, Any] = {
    "full": PRESETS["mnist"].network,
    "compact": PRESETS["mnist-compact"].network,
}
BASELINE = "straightforward.onnx"
TOLERANCE = 1e-4
"""How far presence and poses of the two may lie apart."""
MIN_TURN = 0.2
"""Seconds; shorter calls are repeated until a turn lasts about this long."""

app = typer.Typer(pretty_exceptions_enable=False)


class Pair(NamedTuple):
    """The two encoders, loaded."""

    ours: InferenceSession
    baseline: InferenceSession


class Rates(NamedTuple):
    """Images per second in each round."""

    ours: list[float]
    baseline: list[float]

    @property
    def ratio(self) -> float:
        """Ours over the baseline, of the medians."""
        return median(self.ours) / median(self.baseline)

    @property
    def ratios(self) -> list[float]:
        """Ours over the baseline, round by round."""
        return [one / other for one, other in zip(self.ours, self.baseline, strict=True)]


@app.command()
def compare(
    *,
    size: Annotated[
        Literal["full", "compact", "clothes"], typer.Option(help="Which network.")
    ] = "full",
    batches: Annotated[tuple[int, int], typer.Option(help="Two batch sizes.")] = (1, 32),
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each encoder.")] = 15,
    threads: Annotated[int, typer.Option(min=0, help="Of one inference; 0: the CPU quota.")] = 0,
) -> None:
    """Let the two encoders take turns and print their median rates."""
    threads = threads or cpu_quota()
    table = Table("batch", "ours, images/s", "baseline, images/s", "ratio", "min - max")
    with tempfile.TemporaryDirectory() as scratch:
        write_pair(create_network(SIZES[size]), Path(scratch))
        for batch in batches:
            pair = open_pair(Path(scratch), batch, threads=threads)
            images = draw_images(batch, SIZES[size].height)
            check_answers(pair, images)
            table.add_row(str(batch), *describe(measure(pair, images, rounds=rounds)))
    table.title = f"{size} encoder, {threads} thread(s), {rounds} rounds"
    Console().print(table)


@torch.no_grad()
def create_network(config: DynamicConfig) -> DynamicCapsNet:
    """A network of seeded random weights, rounded as the export demands."""
    torch.manual_seed(0)
    network = DynamicCapsNet(config).eval()
    round_weights(network)
    return network


def write_pair(network: DynamicCapsNet, folder: Path) -> None:
    """Export the network both ways."""
    write_graphs(network, folder)
    write_graph(StraightforwardCapsNet.of(network), folder / BASELINE)


def open_pair(folder: Path, batch: int, *, threads: int) -> Pair:
    """Open the graph that the service runs at this batch, and the baseline, with equal options."""
    ours = "encoder.onnx" if batch < BATCH_ROWS else "encoder.batch.onnx"
    return Pair(
        open_session(folder / ours, threads=threads),
        open_session(folder / BASELINE, threads=threads),
    )


def draw_images(count: int, size: int) -> Floats:
    """Seeded noise, (count, 1, size, size) in [0, 1)."""
    return np.random.default_rng(0).random((count, 1, size, size), dtype=np.float32)


def check_answers(pair: Pair, images: Floats) -> None:
    """Compare presence and poses of the two; speed means nothing where they differ."""
    outputs = [session.run(["presence", "poses"], {"images": images}) for session in pair]
    for ours, baseline in zip(*outputs, strict=True):
        difference = float(np.abs(ours - baseline).max())
        assert difference <= TOLERANCE, f"the two encoders differ by {difference:.1e}"


def measure(pair: Pair, images: Floats, *, rounds: int) -> Rates:
    """Rates of both in turn, a warm-up before; who begins changes with each round."""
    calls = [caller(session, images) for session in pair]
    repeats = [choose_repeats(call) for call in calls]
    rates = Rates([], [])
    for number in range(rounds):
        for turn in (0, 1) if number % 2 else (1, 0):
            rates[turn].append(len(images) / seconds(calls[turn], repeats[turn]))
    return rates


def describe(rates: Rates) -> tuple[str, str, str, str]:
    """The cells of one row."""
    return (
        f"{median(rates.ours):,.0f}",
        f"{median(rates.baseline):,.0f}",
        f"{rates.ratio:.2f}",
        f"{min(rates.ratios):.2f} - {max(rates.ratios):.2f}",
    )


def caller(session: InferenceSession, images: Floats) -> Callable[[], object]:
    """What is timed."""
    return lambda: session.run(["presence", "poses"], {"images": images})


def choose_repeats(call: Callable[[], object]) -> int:
    """How often a call is repeated in a turn, after three to warm up."""
    return max(1, math.ceil(MIN_TURN / seconds(call, 3)))


def seconds(
    call: Callable[[], object], repeats: int, *, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds of one call, as a mean over a turn."""
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


if __name__ == "__main__":
    app()
