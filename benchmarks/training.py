"""A training step against a plain eager float32 loop of the same network: images per second.

Each has a process of its own, since settings of memory and of cuDNN are the process's, and they
take turns. The plain loop's settings are PyTorch's own: on CUDA its convolutions use TF32. Both
start from the same weights, see the same batches of noise, and are timed only after their first
losses agreed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count, islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.plain_loop import PlainLoop
from model.capsnet import family_of
from model.capsnet.dynamic import DynamicCapsNet
from training.data.datasets import Examples
from training.device import choose_device, keep_freed_memory
from training.recipes import PRESETS, Recipe
from training.state import Plan
from training.trainer import Trainer

SIDES = ("ours", "plain")
COMPARED = [
    name
    for name, recipe in PRESETS.items()
    if family_of(recipe.network).name == "dynamic" and not recipe.network.decoder_channels
]
"""Presets that the plain loop knows how to train."""
WARM_UP_STEPS = 3
TOLERANCE = {"cpu": 1e-3, "cuda": 3e-2}
"""How far the first losses may lie apart, of one; convolutions are in bfloat16 on CUDA."""
_IMAGES = 10_000

Step = Callable[[int], torch.Tensor]
app = typer.Typer(pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Options:
    """What both processes get."""

    preset: str
    batch: int
    device: str
    threads: int
    processor_time: bool


@app.command()
def compare(
    *,
    preset: Annotated[str, typer.Option(help=f"One of {', '.join(COMPARED)}.")] = "mnist",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    batch: Annotated[int, typer.Option(min=1, help="Images in a step.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="Of a turn.")] = 20,
    threads: Annotated[int, typer.Option(min=0, help="Of a CPU; 0 takes them all.")] = 0,
    processor_time: Annotated[
        bool,
        typer.Option("--processor-time", help="Time on the CPU's cores: for a busy machine."),
    ] = False,
) -> None:
    """Let the two take turns and print their median rates."""
    if preset not in COMPARED:
        raise typer.BadParameter(f"{preset} is none of {', '.join(COMPARED)}")
    where = str(choose_device(device))
    options = Options(preset, batch, where, threads, processor_time)
    pipes = [_start(side, options) for side in SIDES]
    ours, plain = (np.array(pipe.recv()) for pipe in pipes)
    difference = float(np.abs(ours / plain - 1).max())
    assert difference <= TOLERANCE[where.partition(":")[0]], f"first losses: {ours} and {plain}"
    rates: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            pipes[side].send(steps)
            rates[side].append(steps * batch / pipes[side].recv())
    for pipe in pipes:
        pipe.send(0)
    _show(options, *rates, title=f"{preset}, batch {batch}, {_name(where)}, {rounds} rounds")


def draw_noise(recipe: Recipe) -> Examples:
    """Sparse noise of the recipe's size and classes; pairs are made of images of 28 pixels."""
    network = recipe.network
    size = (28, 28) if recipe.task == "pairs" else (network.height, network.width)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (_IMAGES, network.channels, *size), dtype=np.uint8)
    images[rng.random(images.shape) < 0.8] = 0
    return Examples(images, rng.integers(0, network.num_classes, _IMAGES))


def _show(options: Options, ours: list[float], plain: list[float], *, title: str) -> None:
    ratios = [one / other for one, other in zip(ours, plain, strict=True)]
    per = "s of a core" if options.processor_time else "s"
    table = Table("", f"images/{per}", title=title)
    table.add_row("ours", f"{median(ours):,.0f}")
    table.add_row("plain eager float32", f"{median(plain):,.0f}")
    table.add_row("ratio", f"{median(ours) / median(plain):.2f}")
    table.add_row("in single rounds", f"{min(ratios):.2f} - {max(ratios):.2f}")
    Console().print(table)


def _start(side: str, options: Options) -> Connection:
    context = get_context("spawn")
    here, there = context.Pipe()
    context.Process(target=_work, args=(side, options, there), daemon=True).start()
    return here


def _work(side: str, options: Options, pipe: Connection) -> None:
    """Tell the first losses, then train as many steps as asked for and tell how long it took."""
    device = choose_device(options.device) if side == "ours" else torch.device(options.device)
    if options.threads:
        torch.set_num_threads(options.threads)
    clock = time.process_time if options.processor_time else time.perf_counter
    with tempfile.TemporaryDirectory() as scratch:
        trainer = make_trainer(options, device, Path(scratch))
        step = _ours(trainer) if side == "ours" else _plain(trainer)
        pipe.send(step(0).tolist())
        numbers = count(1)

        def train(steps: int) -> float:
            _wait(device)
            start = clock()
            for number in islice(numbers, steps):
                step(number)
            _wait(device)
            return clock() - start

        train(WARM_UP_STEPS)
        for steps in iter(pipe.recv, 0):
            pipe.send(train(steps))


def make_trainer(options: Options, device: torch.device, scratch: Path) -> Trainer:
    """A trainer of a preset on noise."""
    recipe = replace(PRESETS[options.preset], batch_size=options.batch)
    return Trainer(Plan(recipe, 1, draw_noise(recipe), None, scratch), device=device)


def _ours(trainer: Trainer) -> Step:
    if trainer.device.type == "cpu":
        keep_freed_memory()
    return lambda _: torch.stack(list(trainer.step().values()))


def _plain(trainer: Trainer) -> Step:
    assert isinstance(trainer.network, DynamicCapsNet)
    loop = PlainLoop(
        trainer.network, mse_weight=trainer.plan.recipe.mse_weight, device=trainer.device
    )
    return lambda number: loop.step(*trainer.task.batches.batch(number))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"


if __name__ == "__main__":
    app()
