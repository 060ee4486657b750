"""The encoders of the bundles that ship, in turn with that of `mnist`; and how fast they train.

Images a second of one CPU thread, at two batch sizes, medians over rounds in which all take turns;
ratios are to `mnist` in the same round. Training speed is that of each bundle's preset.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.encoder import choose_repeats, seconds
from model.bundle import MANIFEST, Bundle
from model.preprocess import Floats
from model.runtime import Runtime
from training.data.datasets import Examples
from training.device import keep_freed_memory
from training.recipes import PRESETS
from training.state import Plan
from training.trainer import Trainer

REFERENCE = "mnist"
BUNDLES = Path("model/bundles")
_STEPS = 10

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def compare(
    *,
    bundles: Annotated[Path, typer.Option(help="The folder of the bundles.")] = BUNDLES,
    batches: Annotated[tuple[int, int], typer.Option(help="Two batch sizes.")] = (1, 32),
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each encoder.")] = 9,
    training: Annotated[bool, typer.Option(help="Also time ten training steps of each.")] = True,
) -> None:
    """Let all encoders take turns and print a row for each."""
    torch.set_num_threads(1)
    keep_freed_memory()
    runtimes = {
        path.parent.name: Runtime(Bundle.open(path.parent), device="cpu", threads=1)
        for path in sorted(bundles.glob(f"*/{MANIFEST}"))
    }
    rates = {batch: measure(runtimes, batch, rounds) for batch in batches}
    headings = [f"images/s at {batch} (x {REFERENCE}, min - max)" for batch in batches]
    table = Table("bundle", "family", "encoder parameters", *headings, "training images/s")
    for name, runtime in runtimes.items():
        manifest = runtime.bundle.manifest
        cells = [describe(rates[batch][name], rates[batch][REFERENCE]) for batch in batches]
        speed = f"{train(manifest.training['recipe']['name'], name):,.0f}" if training else ""
        table.add_row(name, manifest.family, f"{count(runtime.bundle):,}", *cells, speed)
    table.title = f"one CPU thread, {rounds} rounds"
    Console(width=160).print(table)


def measure(runtimes: dict[str, Runtime], batch: int, rounds: int) -> dict[str, list[float]]:
    """Images a second of each encoder, round by round."""
    calls = {}
    for name, runtime in runtimes.items():
        shape = (batch, *runtime.bundle.manifest.image_shape)
        calls[name] = _caller(runtime, np.random.default_rng(0).random(shape, dtype=np.float32))
    repeats = {name: choose_repeats(call) for name, call in calls.items()}
    rates: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        for name in list(calls) if number % 2 else reversed(calls):
            rates[name].append(batch / seconds(calls[name], repeats[name]))
    return rates


def describe(rates: list[float], reference: list[float]) -> str:
    """The median rate, and its ratio to the reference with the least and largest of a round."""
    ratios = [one / other for one, other in zip(rates, reference, strict=True)]
    return f"{median(rates):,.0f} ({median(ratios):.1f}, {min(ratios):.1f} - {max(ratios):.1f})"


def count(bundle: Bundle) -> int:
    """Parameters of the encoder."""
    from model.capsnet import load  # noqa: PLC0415  torch's network, for this number alone

    named = load(bundle).named_parameters()
    return sum(one.numel() for name, one in named if not name.startswith("decoder."))


def train(preset: str, bundle: str) -> float:
    """Images a second of ten steps of a preset, after three to warm up."""
    recipe = PRESETS[preset if preset in PRESETS else bundle]
    shape = (1000, 1, 28, 28) if recipe.task == "pairs" else (1000, *recipe.network.image_shape)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    labels = rng.integers(0, recipe.network.num_classes, len(images))
    with tempfile.TemporaryDirectory() as scratch:
        plan = Plan(replace(recipe, name="bench"), 1, Examples(images, labels), None, Path(scratch))
        trainer = Trainer(plan, device=torch.device("cpu"))
        seconds(trainer.step, 3)
        return recipe.batch_size / seconds(trainer.step, _STEPS)


def _caller(runtime: Runtime, images: Floats):  # noqa: ANN202  what `seconds` takes
    return lambda: runtime.encode(images)


if __name__ == "__main__":
    app()
