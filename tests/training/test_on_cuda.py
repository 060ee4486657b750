"""What only a CUDA device can show of training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.capsnet import CapsNetConfig
from training.data.datasets import Examples
from training.hardware.cuda_graph import Recording
from training.recipes import Recipe
from training.run.checkpoint import Checkpoint
from training.run.plan import CHECKPOINT, Plan
from training.run.trainer import Trainer

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here"),
]
STEPS = 5


@pytest.fixture(params=["digits", "pairs", "averaged", "distorted"])
def recipe(request: pytest.FixtureRequest) -> Recipe:
    """A small network, sizes of which cuDNN and cuBLAS have kernels for."""
    network = CapsNetConfig(conv_channels=32, primary_types=4, num_classes=3, decoder_hidden=(8, 8))
    digits = Recipe("small", network=network, epochs=9, batch_size=8)
    return {
        "digits": digits,
        "pairs": replace(
            digits, task="pairs", network=replace(network, image_size=36), epochs=0.01, shift_px=4
        ),
        "averaged": replace(digits, average_decay=0.9, flip=True),
        "distorted": replace(digits, affine=0.5, elastic_px=1),
    }[request.param]


def begin(recipe: Recipe, bars: Examples, directory: Path, *, resume: bool = False) -> Trainer:
    return Trainer(
        Plan(recipe, 1, bars, None, directory), device=torch.device("cuda"), resume=resume
    )


def test_a_recorded_step_is_the_step(recipe: Recipe, bars: Examples, tmp_path: Path) -> None:
    """Replayed from a graph or launched kernel by kernel, training ends in about the same weights.

    Not in the same ones: sums over threads come in any order, and Adam makes steps of one size of
    small and large gradients.
    """
    recorded, plain = (begin(recipe, bars, tmp_path / name) for name in ("recorded", "plain"))
    assert isinstance(recorded._losses, Recording)
    plain._losses = plain._descend
    for _ in range(STEPS):
        losses = [trainer.step().clone() for trainer in (plain, recorded)]
        torch.testing.assert_close(*losses, rtol=2e-2, atol=1e-3)
    rate = recipe.learning_rate
    for expected, actual in zip(
        plain.network.parameters(), recorded.network.parameters(), strict=True
    ):
        assert (expected - actual).abs().mean().item() < rate


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_steps_do_not_wait_for_the_device(recipe: Recipe, bars: Examples, tmp_path: Path) -> None:
    """After the first one, nothing in a step makes the CPU wait; torch would raise."""
    trainer = begin(recipe, bars, tmp_path)
    trainer.step()
    try:
        torch.cuda.set_sync_debug_mode("error")
        trainer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_recorded_run_resumes(recipe: Recipe, bars: Examples, tmp_path: Path) -> None:
    """It ends, is saved, and goes on from what was saved."""
    trainer = begin(recipe, bars, tmp_path)
    for _ in range(STEPS):
        trainer.step()
    trainer.save()
    resumed = begin(recipe, bars, tmp_path, resume=True)
    assert resumed.run(log_every=10)
    assert resumed.total_steps == Checkpoint.load(tmp_path / CHECKPOINT).step
