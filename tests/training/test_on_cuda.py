"""What only a CUDA device can show of training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.capsnet.attention import AttentionConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.matrix import MatrixConfig
from model.capsnet.stem import Conv
from training.data.datasets import Examples
from training.device import WARM_UP_STEPS, Replay, choose_device
from training.recipes import Recipe
from training.state import Plan
from training.trainer import Trainer

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here"),
]


SIZES: dict[str, Any] = {"num_classes": 3, "decoder_hidden": (8, 8)}
DYNAMIC = DynamicConfig(stem=(Conv(32, 9),), primary_types=4, **SIZES)
PLAIN = Recipe("plain", network=DYNAMIC, epochs=9, batch_size=8)
RECIPES = {
    "plain": PLAIN,
    "pairs": replace(
        PLAIN, task="pairs", network=replace(DYNAMIC, height=36, width=36), epochs=0.01, shift_px=4
    ),
    "averaged": replace(PLAIN, average_decay=0.9, flip=True, affine=0.5, elastic_px=1),
    "Muon": replace(PLAIN, muon_rate=0.03, muon_votes=0.2, weight_decay=0.1),
    "batch normalisation": replace(PLAIN, network=AttentionConfig(**SIZES)),
    "spread loss": replace(
        PLAIN,
        # On so few images batch normalisation would make chaos of rounding errors.
        network=MatrixConfig(
            stem=(Conv(32, 5, 2),), primary_types=4, conv_caps=(8, 8), batch_norm=False, **SIZES
        ),
        loss="spread",
        spread_steps=1,
    ),
}


@pytest.fixture(autouse=True)
def device() -> Iterator[torch.device]:
    """The GPU, set up as trainings do it."""
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    yield choose_device("cuda")
    cudnn.benchmark, cudnn.conv.fp32_precision = before  # type: ignore[attr-defined]


@pytest.fixture(params=RECIPES)
def recipe(request: pytest.FixtureRequest) -> Recipe:
    """A small network, sizes of which cuDNN and cuBLAS have kernels for."""
    return RECIPES[request.param]


def begin(recipe: Recipe, bars: Examples, directory: Path, **options: bool) -> Trainer:
    return Trainer(Plan(recipe, 1, bars, None, directory), device=current(), **options)


def current() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def test_a_step_is_about_the_cpus(recipe: Recipe, bars: Examples, tmp_path: Path) -> None:
    """Losses of the first step are those of a CPU, up to convolutions in bfloat16.

    Not those of later steps: Adam makes steps of one size of any gradient, and where that is
    nearly zero its sign is chance.
    """
    plan = Plan(recipe, 1, bars, None, tmp_path / "cpu")
    expected = Trainer(plan, device=torch.device("cpu")).step()
    losses = begin(recipe, bars, tmp_path / "cuda").step()
    actual = {name: loss.cpu() for name, loss in losses.items()}
    torch.testing.assert_close(expected, actual, rtol=3e-2, atol=1e-2)


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


def test_a_replayed_step_does_what_a_usual_one_does(
    recipe: Recipe, bars: Examples, tmp_path: Path
) -> None:
    """Losses stay together over steps with their own images, rates and shares of the average."""
    replayed = begin(recipe, bars, tmp_path / "replayed")
    usual = begin(recipe, bars, tmp_path / "usual", replay=False)
    for _ in range(WARM_UP_STEPS + 4):
        expected = {name: float(loss) for name, loss in usual.step().items()}
        actual = {name: float(loss) for name, loss in replayed.step().items()}
        assert expected == pytest.approx(actual, rel=5e-2, abs=1e-2)
    assert isinstance(replayed.work, Replay)
    assert replayed.work.captured
    for own, other in zip(replayed.result.parameters(), usual.result.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=5e-2, atol=2e-2)


def test_work_that_waits_for_the_gpu_runs_as_usual() -> None:
    """It cannot be captured. A warning says so once, and no step is lost."""
    sums = []

    def work(rows: torch.Tensor, step: torch.Tensor) -> dict[str, torch.Tensor]:
        sums.append(rows.sum().item())
        return {"loss": step + 1}

    replay = Replay(work, device=current())
    steps = [torch.tensor(float(step), device=current()) for step in range(WARM_UP_STEPS + 3)]
    with pytest.warns(UserWarning, match="not captured as a CUDA graph") as warned:
        losses = [float(replay(step.expand(2), step)["loss"]) for step in steps]
    assert 1 == len(warned)
    assert list(range(1, WARM_UP_STEPS + 4)) == losses
    assert [2 * step for step in range(WARM_UP_STEPS + 3)] == sums
