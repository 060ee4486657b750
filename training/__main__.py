"""The command line: `python -m training --help`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from training.datasets import DATASETS, hold_out, load
from training.recipes import PRESETS
from training.trainer import Plan, Trainer

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

DataDir = Annotated[Path, typer.Option(envvar="CAPSNET_DATA_DIR", help="Folder of the data sets.")]


@app.callback()
def main() -> None:
    """Train, evaluate and export capsule networks."""


@app.command()
def train(
    preset: str,
    data_dir: DataDir = Path("data"),
    run_dir: Path | None = None,
    seed: int = 1,
    resume: bool = False,
    max_minutes: float = float("inf"),
    threads: int = 0,
    final: bool = False,
    device: str = "auto",
) -> None:
    """Train PRESET."""
    if threads:
        torch.set_num_threads(threads)
    recipe = PRESETS[preset]
    data = load(DATASETS[recipe.dataset], "train", data_dir)
    training, validation = (data, None) if final else hold_out(data, 5000)
    plan = Plan(recipe, seed, training, validation, run_dir or Path("runs") / f"{preset}-{seed}")
    trainer = Trainer(plan, device=torch.device("cpu"), resume=resume)
    trainer.run(max_minutes=max_minutes)


if __name__ == "__main__":
    app()
