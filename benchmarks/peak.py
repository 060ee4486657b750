"""Convolutions of a training step next to what oneDNN reaches for their shapes, on one thread.

A convolution is timed forward and backward, as the network has it and as PyTorch's own in the
faster of its two memory formats. Both take turns, and the fastest turn of each counts. Operations
are those of a direct convolution, so a layer that needs fewer may exceed oneDNN.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from torch import Tensor, nn

from benchmarks.training import Options, make_trainer
from training.device import keep_freed_memory
from training.recipes import PRESETS
from training.trainer import Trainer

FORMATS = (torch.contiguous_format, torch.channels_last)
app = typer.Typer(pretty_exceptions_enable=False)


class Convolution(NamedTuple):
    """A convolution of a network, and an input of it as a training step has it."""

    module: nn.Conv2d
    images: Tensor

    @property
    def operations(self) -> int:
        """Multiplications and additions of a forward and a backward pass."""
        with torch.no_grad():
            outputs = self.module(self.images).numel()
        passes = 3 if self.images.requires_grad else 2
        return 2 * passes * outputs * self.module.weight[0].numel()


@app.command()
def compare(
    preset: Annotated[str, typer.Option(help=f"One of {', '.join(PRESETS)}.")] = "mnist",
    batch: Annotated[int, typer.Option(min=1, help="Images in a step.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each side.")] = 5,
) -> None:
    """Print GFLOP/s of each convolution, and the share of a step at oneDNN's rate."""
    torch.set_num_threads(1)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as scratch:
        options = Options(preset, batch, "cpu", 1, processor_time=True)
        trainer = make_trainer(options, torch.device("cpu"), Path(scratch))
        convolutions = find_convolutions(trainer)
        step_s = min(_seconds(trainer.step) for _ in range(rounds))
    typer.echo(f"{preset}, batch {batch}, CPU seconds of one thread, fastest of {rounds}\n")
    typer.echo("| convolution | GFLOP/s | oneDNN | share |\n|---|---|---|---|")
    ours_s = best_s = 0.0
    for convolution in convolutions:
        own, best = time_both(convolution, rounds)
        ours_s, best_s, work = ours_s + own, best_s + best, convolution.operations / 1e9
        shape = " x ".join(map(str, convolution.module.weight.shape))
        typer.echo(f"| {shape} | {work / own:.0f} | {work / best:.0f} | {best / own:.2f} |")
    typer.echo(f"\nA step takes {1e3 * step_s:.0f} ms, {batch / step_s:.0f} images/s.")
    typer.echo(f"Its convolutions take {1e3 * ours_s:.0f} ms ({ours_s / step_s:.2f} of it),")
    typer.echo(f"and {1e3 * best_s:.0f} ms ({best_s / step_s:.2f}) at oneDNN's rate.")


def find_convolutions(trainer: Trainer) -> list[Convolution]:
    """All convolutions of a step, in order."""
    found: list[Convolution] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(module, nn.Conv2d)
        images = inputs[0].detach().clone()
        found.append(Convolution(module, images.requires_grad_(inputs[0].requires_grad)))

    convolutions = [one for one in trainer.network.modules() if isinstance(one, nn.Conv2d)]
    hooks = [one.register_forward_pre_hook(keep) for one in convolutions]
    trainer.step()
    for hook in hooks:
        hook.remove()
    return found


def time_both(convolution: Convolution, rounds: int) -> tuple[float, float]:
    """CPU seconds of both passes: as the network has them, and as oneDNN has them at best."""
    module, images = convolution
    plain = nn.Conv2d(
        module.in_channels,
        module.out_channels,
        (module.kernel_size[0], module.kernel_size[1]),
        module.stride,
        module.padding,
        bias=module.bias is not None,
    )
    own, best = [], []
    for _ in range(rounds):
        own.append(_time_passes(module, images))
        for form in FORMATS:
            laid = plain.to(memory_format=form)
            seen = images.detach().contiguous(memory_format=form)
            seen.requires_grad_(images.requires_grad)
            best.append(_time_passes(laid, seen))
    return min(own), min(best)


def _time_passes(module: nn.Module, images: Tensor) -> float:
    with torch.no_grad():
        slopes = torch.ones_like(module(images))
    return _seconds(lambda: module(images).backward(slopes))


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    app()
