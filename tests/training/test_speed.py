from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from training import speed
from training.recipes import Recipe
from training.speed import choose_fast, is_worse, list_options, measure_options, set_budgets

CPU = torch.device("cpu")
RATES = {"plain": 900.0, "rounded": 950.0, "large": 1000.0}


def test_options_begin_with_the_recipes_own(tiny: Recipe) -> None:
    """Then come rounded votes and larger batches, the plainer before the other."""
    assert [
        "batch_size=8 votes=float32",
        "batch_size=8 votes=bfloat16",
        "batch_size=16 votes=float32",
        "batch_size=16 votes=bfloat16",
        "batch_size=32 votes=float32",
        "batch_size=32 votes=bfloat16",
    ] == list_options(tiny)


@pytest.mark.parametrize("task", ["single", "pairs"])
def test_every_option_is_measured(tiny: Recipe, task: str) -> None:
    """Of single images and of pairs; for at least a step."""
    size = 28 if task == "single" else 36
    network = replace(tiny.network, height=size, width=size)
    recipe = replace(tiny, task=task, network=network)
    rates = measure_options(recipe, CPU, seconds=0)
    assert list_options(recipe) == list(rates)
    assert all(0 < rate < math.inf for rate in rates.values())


def test_what_needs_too_much_memory_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tiny: Recipe
) -> None:
    """The other options are measured all the same."""

    def measure(recipe: Recipe, *_: object, **__: object) -> float:
        if recipe.batch_size > 16:
            raise torch.OutOfMemoryError
        return 1.0

    monkeypatch.setattr(speed, "measure", measure)
    assert list_options(tiny)[:4] == list(measure_options(tiny, CPU, seconds=0))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, "plain"), ({"plain": 890.0}, "rounded"), ({"large": 2000.0}, "large")],
    ids=str,
)
def test_the_plainest_of_the_fast_ones_is_chosen(changes: dict[str, float], expected: str) -> None:
    """A tenth is not worth a larger batch."""
    assert expected == choose_fast(RATES | changes)


@pytest.mark.parametrize(
    ("error", "other", "expected"),
    [(0.8, 0.6, False), (1.2, 0.6, True), (0.6, 1.2, False), (0, 0, False), (100, 100, False)],
)
def test_chance_makes_nothing_worse(error: float, other: float, *, expected: bool) -> None:
    """Errors in percent of 5,000 images are apart by more than two standard deviations, or not."""
    assert expected is is_worse(error, other)


def test_runs_share_the_time() -> None:
    """Together they take all of it, those of pairs eleven thirds of the others'."""
    counts, speeds = {"mnist": 3, "multimnist": 1}, {"mnist": 1.0, "multimnist": 0.25}
    budgets = set_budgets(counts, speeds, seconds=1000)
    seconds = {name: budgets[name] / speeds[name] for name in counts}
    assert pytest.approx(1000, abs=1) == 3 * seconds["mnist"] + seconds["multimnist"]
    assert pytest.approx(11 / 3, rel=1e-3) == seconds["multimnist"] / seconds["mnist"]


def test_what_a_run_does_not_need_the_next_one_gets() -> None:
    """No run is longer than the paper's."""
    counts, speeds = {"mnist": 1, "multimnist": 1}, {"mnist": 64.0, "multimnist": 0.5}
    assert {"mnist": 640, "multimnist": 495} == set_budgets(counts, speeds, seconds=1000)


def test_without_time_a_run_is_short() -> None:
    """A hundredth of an epoch still makes a run."""
    assert {"mnist": 0.01} == set_budgets({"mnist": 1}, {"mnist": 1.0}, seconds=-5)
