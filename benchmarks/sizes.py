"""Encoders of the sizes that `training table` compares, in turn: parameters, bytes, images/s.

Their weights are random, which does not matter for speed.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import onnx
import typer
from numpy.typing import NDArray
from onnx.external_data_helper import ExternalDataInfo, uses_external_data
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.encoder import SIZES, caller, choose_repeats, create_network, draw_images, seconds
from model.bundle import ENCODER, ENCODER_BATCH
from model.capsnet import CapsNet, CapsNetConfig
from model.cpu import open_session
from model.runtime import BATCH_ROWS
from training.publication.graphs import write_graphs
from training.table.encoders import BATCHES, Encoder, write_encoders
from training.table.rows import ROWS, SECTIONS

FULL = "full"


def compare(
    *,
    output: Annotated[Path, typer.Option(help="File to write.")] = Path("docs/encoders.json"),
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each encoder.")] = 15,
) -> None:
    """Let all encoders take turns on one thread, timed by the processor, and write what they took.

    Ratios are medians over rounds of an encoder's rate to the full-size one's of the same round.
    """
    networks = {
        name: create_network(config) for name, config in {**find_sizes(), FULL: SIZES[FULL]}.items()
    }
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: Path(scratch) / name for name in networks}
        for name in track(networks, "exporting"):
            folders[name].mkdir()
            write_graphs(networks[name], folders[name])
        rates = {batch: measure(folders, int(batch), rounds=rounds) for batch in BATCHES}
        encoders = [
            Encoder(
                row=name,
                parameters=count_parameters(networks[name]),
                bytes=count_bytes(folders[name] / ENCODER),
                images_per_s={batch: round(median(rates[batch][name]), 1) for batch in BATCHES},
                ratios={
                    batch: round(float(np.median(rates[batch][name] / rates[batch][FULL])), 2)
                    for batch in BATCHES
                },
            )
            for name in networks
        ]
    write_encoders([one for one in encoders if one.row != FULL], output)
    show(encoders)


def find_sizes() -> dict[str, CapsNetConfig]:
    """Networks whose encoders the page describes, by row."""
    return {
        row.name: row.recipe.network
        for section in SECTIONS
        if section.encoders
        for row in ROWS.values()
        if row.stem in section.stems
    }


def measure(folders: dict[str, Path], batch: int, *, rounds: int) -> dict[str, NDArray[np.float64]]:
    """Images per second of processor time in each round; who begins changes with each."""
    graph = ENCODER if batch < BATCH_ROWS else ENCODER_BATCH
    images = draw_images(batch, SIZES[FULL].image_size)
    calls = {
        name: caller(open_session(folder / graph, threads=1), images)
        for name, folder in folders.items()
    }
    repeats = {name: choose_repeats(call) for name, call in calls.items()}
    rates: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for _ in track(range(rounds), f"batch {batch}"):
        for name in order:
            taken = seconds(calls[name], repeats[name], clock=time.process_time)
            rates[name].append(batch / taken)
        order.append(order.pop(0))
    return {name: np.array(each) for name, each in rates.items()}


def count_parameters(network: CapsNet) -> int:
    """Of the encoder."""
    parts = (network.conv, network.primary, network.classes)
    return sum(weight.numel() for part in parts for weight in part.parameters())


def count_bytes(graph: Path) -> int:
    """Of a graph and of the weights that it reads."""
    weights = onnx.load(graph, load_external_data=False).graph.initializer
    read = sum(ExternalDataInfo(one).length for one in weights if uses_external_data(one))
    return graph.stat().st_size + read


def show(encoders: list[Encoder]) -> None:
    """Print them."""
    table = Table("encoder", "parameters", "MB", *(f"images/s at {batch}" for batch in BATCHES))
    for one in encoders:
        speeds = [f"{one.images_per_s[batch]:,.0f} ({one.ratios[batch]:.1f})" for batch in BATCHES]
        table.add_row(one.row, f"{one.parameters:,}", f"{one.bytes / 1e6:.2f}", *speeds)
    Console().print(table)


if __name__ == "__main__":
    typer.run(compare)
