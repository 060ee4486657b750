"""Size, speed and training speed of the paper's networks, the families' and others that ship.

Images a second of one CPU thread, at two batch sizes, medians over rounds in which all take turns;
ratios are to the paper's CapsNet in the same round. Weights are random and do not matter.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.encoder import Doubles, caller, compare_rates, draw_images, take_turns
from benchmarks.training import WARM_UP_STEPS, draw_noise
from model.bundle import Bundle
from model.capsnet import Network, build
from model.capsnet.baseline import BaselineConfig
from model.capsnet.winograd import WinogradConv2d
from model.runtime.cpu import open_session
from model.runtime.runtime import BATCH_ROWS
from research.controls import HeadConfig, register
from research.rows import ATTENTION, CNN, DIGITS, MATRIX, SHARED, plain
from training.device import keep_freed_memory
from training.graphs import fold_norms, round_weights, write_graphs
from training.recipes import PRESETS, Recipe, recipe_of
from training.state import Plan
from training.trainer import Trainer

SHIPPED = Path(__file__).parents[1] / "model" / "bundles"
REFERENCE = "paper's CapsNet"
RECIPES: dict[str, Recipe] = {
    REFERENCE: PRESETS["mnist"],
    "paper's CNN": plain(PRESETS["mnist"], BaselineConfig()),
    "baseline CNN": CNN,
    "dynamic": DIGITS,
    "attention": ATTENTION,
    "linear layer on attention's convolutions": plain(ATTENTION, HeadConfig()),
    "shared": SHARED,
    "matrix": MATRIX,
    **{
        name: recipe_of(Bundle.open(SHIPPED / name))
        for name in ("multimnist-attention", "fashion-mnist-attention", "cifar10", "assemblies")
    },
}
BATCHES = (1, 32)

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def compare(
    *,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each encoder.")] = 9,
    write: Annotated[Path | None, typer.Option(help="A JSON file, for docs/results.md.")] = None,
) -> None:
    """Let all encoders take turns and print a row for each."""
    torch.set_num_threads(1)
    keep_freed_memory()
    register()
    networks = {name: _network(recipe) for name, recipe in RECIPES.items()}
    rates = measure(networks, rounds)
    found = {
        name: {
            "parameters": count_parameters(network),
            "multiplications": count_multiplications(network),
            **{
                f"images/s at {batch}": describe(rates[name, batch], rates[REFERENCE, batch])
                for batch in BATCHES
            },
            "training images/s": f"{_train(RECIPES[name]):,.0f}",
        }
        for name, network in networks.items()
    }
    table = Table("network", *found[REFERENCE], title=f"one CPU thread, {rounds} rounds")
    for name, cells in found.items():
        table.add_row(
            name, *(f"{one:,}" if isinstance(one, int) else str(one) for one in cells.values())
        )
    Console(width=160).print(table)
    if write:
        write.write_text(json.dumps({"rounds": rounds, "networks": found}, indent=1) + "\n")


def measure(networks: dict[str, Network], rounds: int) -> dict[tuple[str, int], Doubles]:
    """Images a second of each encoder at each batch size, round by round."""
    calls = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, network in networks.items():
            folder = Path(scratch, name)
            folder.mkdir()
            write_graphs(network, folder)
            for batch in BATCHES:
                graph = folder / "encoder.batch.onnx"
                if batch < BATCH_ROWS or not graph.exists():
                    graph = folder / "encoder.onnx"
                images = draw_images(batch, network.config)
                calls[name, batch] = caller(open_session(graph, threads=1), images)
        return {key: key[1] / one for key, one in take_turns(calls, rounds).items()}


def describe(ours: Doubles, reference: Doubles) -> str:
    """The median rate, and its ratio to the reference with the least and largest of a round."""
    middle, least, largest = compare_rates(ours, reference)
    return f"{median(ours):,.0f} ({middle:.1f}, {least:.1f} - {largest:.1f})"


def count_parameters(network: Network) -> int:
    """Those of the encoder."""
    return sum(
        one.numel() for name, one in network.named_parameters() if not name.startswith("decoder.")
    )


@torch.no_grad()
def count_multiplications(network: Network) -> int:
    """Of the encoder for one image, with plain convolutions."""
    for module in network.modules():
        if isinstance(module, WinogradConv2d):
            module.direct = True
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, *network.config.image_shape))
    return int(counter.get_total_flops()) // 2


def _train(recipe: Recipe) -> float:
    """Images (or pairs) a second of training steps, for about a second."""
    with tempfile.TemporaryDirectory() as scratch:
        plan = Plan(recipe, 0, draw_noise(recipe), None, Path(scratch))
        trainer = Trainer(plan, device=torch.device("cpu"))
        for _ in range(WARM_UP_STEPS):
            trainer.step()
        start, steps, elapsed = time.perf_counter(), 0, 0.0
        while elapsed <= 1:
            trainer.step()
            steps += 1
            elapsed = time.perf_counter() - start
    return steps * recipe.batch_size / elapsed


@torch.no_grad()
def _network(recipe: Recipe) -> Network:
    torch.manual_seed(0)
    network: Network = build(recipe.network).eval()
    fold_norms(network)
    round_weights(network)
    return network


if __name__ == "__main__":
    app()
