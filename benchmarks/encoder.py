"""Encoder in onnxruntime against a straightforward export, on the CPU: images per second.

Both hold the same random weights, which do not matter for speed, and must give the same answers.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from rich.console import Console
from rich.table import Table

from benchmarks.straightforward import StraightforwardCapsNet, write_graph
from model.capsnet.dynamic import DynamicCapsNet, DynamicConfig
from model.capsnet.network import NetworkConfig
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

Key = TypeVar("Key")
Call = Callable[[], Any]
Doubles = NDArray[np.float64]
app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def compare(
    *,
    size: Annotated[Literal["full", "compact"], typer.Option(help="Which network.")] = "full",
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
            images = draw_images(batch, SIZES[size])
            check_answers(pair, images)
            calls = {name: caller(session, images) for name, session in pair.items()}
            rates = {name: batch / one for name, one in take_turns(calls, rounds).items()}
            medians = (f"{median(one):,.0f}" for one in rates.values())
            middle, least, largest = compare_rates(*rates.values())
            table.add_row(str(batch), *medians, f"{middle:.2f}", f"{least:.2f} - {largest:.2f}")
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


def open_pair(folder: Path, batch: int, *, threads: int) -> dict[str, InferenceSession]:
    """Open the graph that the service runs at this batch, and the baseline, with equal options."""
    ours = "encoder.onnx" if batch < BATCH_ROWS else "encoder.batch.onnx"
    return {name: open_session(folder / name, threads=threads) for name in (ours, BASELINE)}


def draw_images(count: int, network: NetworkConfig) -> Floats:
    """Seeded noise, (count, C, H, W) in [0, 1)."""
    shape = (count, *network.image_shape)
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def check_answers(pair: dict[str, InferenceSession], images: Floats) -> None:
    """Compare presence and poses of the two; speed means nothing where they differ."""
    for ours, baseline in zip(*(caller(one, images)() for one in pair.values()), strict=True):
        difference = float(np.abs(ours - baseline).max())
        assert difference <= TOLERANCE, f"the two encoders differ by {difference:.1e}"


def take_turns(calls: Mapping[Key, Call], rounds: int) -> dict[Key, Doubles]:
    """Seconds of each call in each round, after a warm-up; who begins changes with each round."""
    repeats = {key: choose_repeats(call) for key, call in calls.items()}
    times: dict[Key, list[float]] = {key: [] for key in calls}
    for number in range(rounds):
        for key in list(calls) if number % 2 else reversed(list(calls)):
            times[key].append(seconds(calls[key], repeats[key]))
    return {key: np.array(one) for key, one in times.items()}


def compare_rates(ours: Doubles, baseline: Doubles) -> tuple[float, float, float]:
    """One rate over another: the median of the rounds, the least and the largest."""
    ratios = ours / baseline
    return median(ratios), min(ratios), max(ratios)


def caller(session: InferenceSession, images: Floats) -> Call:
    """What is timed."""
    return lambda: session.run(["presence", "poses"], {"images": images})


def choose_repeats(call: Call) -> int:
    """How often a call is repeated in a turn, after three to warm up."""
    return max(1, math.ceil(MIN_TURN / seconds(call, 3)))


def seconds(call: Call, repeats: int) -> float:
    """Seconds of one call, as a mean over a turn."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


if __name__ == "__main__":
    app()
