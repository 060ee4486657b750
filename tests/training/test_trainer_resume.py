from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.runs import MakeTrainer, metrics, minutes, weights
from training.data.datasets import Examples
from training.data.folder import FolderSplit
from training.losses import Losses
from training.recipes import Recipe
from training.state import Checkpoint, CheckpointError, TrainingError
from training.tasks import Task
from training.trainer import Trainer


class KilledError(Exception):
    """Ends a run on the spot, without a chance to save."""


def killed_after(steps: int) -> Callable[[], float]:
    """A clock like `minutes` that ends the run."""

    def ticks() -> Iterator[float]:
        yield from (60.0 * step for step in range(steps))
        raise KilledError

    return ticks().__next__


def run_three_steps(trainer: Trainer) -> None:
    """Train for three of six steps, then save and stop, with a line of metrics for each."""
    trainer.run(max_minutes=2.5, log_every=1, clock=minutes())


def run_until_killed(trainer: Trainer) -> None:
    """Train for five of six steps, of which the last saved is the third, with lines for all."""
    with pytest.raises(KilledError):
        trainer.run(log_every=1, save_every_s=150, clock=killed_after(6))


def logged_steps(trainer: Trainer) -> list[int]:
    """The step of each line of metrics."""
    return [line["step"] for line in metrics(trainer)]


def files(directory: Path) -> dict[str, bytes]:
    """Every file of a run."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("interrupt", [run_three_steps, run_until_killed])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tiny", {}),
        ("tiny_baseline", {"average_decay": 0.7}),
        ("tiny_attention", {"average_decay": 0.7, "muon_rate": 0.02, "muon_votes": 0.2}),
    ],
    ids=["plain", "averaged", "averaged, with Muon"],
)
def test_a_resumed_run_ends_in_the_same_weights(
    make_trainer: MakeTrainer,
    request: pytest.FixtureRequest,
    interrupt: Callable[[Trainer], None],
    name: str,
    settings: dict[str, float],
) -> None:
    """Stopped or killed, a run goes on exactly: dropout, statistics, average and momenta too."""
    recipe = replace(request.getfixturevalue(name), **settings)
    through = make_trainer("through", recipe=recipe)
    through.run()
    interrupt(make_trainer(recipe=recipe))
    resumed = make_trainer(recipe=recipe, resume=True)
    assert resumed.run()
    torch.testing.assert_close(weights(through), weights(resumed), rtol=0, atol=0)
    results = (trainer.result.state_dict() for trainer in (through, resumed))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_metrics_past_the_checkpoint_are_dropped(make_trainer: MakeTrainer) -> None:
    """A kill costs the steps since the last save; in the end every step has its line, once."""
    trainer = make_trainer()
    run_until_killed(trainer)
    before = logged_steps(trainer)
    resumed = make_trainer(resume=True)
    assert 3 == resumed.done_steps
    assert ([1, 2, 3, 4, 5], [1, 2, 3]) == (before, logged_steps(trainer))
    resumed.run(log_every=1)
    assert [1, 2, 3, 4, 5, 6] == logged_steps(resumed)


def test_a_folder_that_holds_out_others_is_not_resumed(make_trainer: MakeTrainer) -> None:
    """The weights may have learnt from them; where the folder lies does not matter."""
    plan, device = make_trainer().plan, torch.device("cpu")
    pictures = FolderSplit(
        folder="/bars", class_names=("top", "middle"), held_out_pictures=("a", "b")
    )
    run_three_steps(Trainer(replace(plan, split=pictures), device=device))
    others = pictures.model_copy(update={"held_out_pictures": ("a", "c")})
    with pytest.raises(TrainingError, match="seed or split"):
        Trainer(replace(plan, split=others), device=device, resume=True)
    moved = pictures.model_copy(update={"folder": "/elsewhere"})
    Trainer(replace(plan, split=moved), device=device, resume=True)


def test_a_run_is_not_started_over(make_trainer: MakeTrainer) -> None:
    """A directory that holds a run is refused without `resume`, and left as it is."""
    trainer = make_trainer()
    run_three_steps(trainer)
    before = files(trainer.plan.directory)
    with pytest.raises(TrainingError, match="already holds a run"):
        make_trainer()
    assert before == files(trainer.plan.directory)


@pytest.mark.parametrize("what", ["recipe", "seed", "split"])
def test_another_run_is_not_resumed(
    make_trainer: MakeTrainer, tiny: Recipe, bars: Examples, what: str
) -> None:
    """A checkpoint of another recipe, seed or split is refused and left as it is."""
    trainer = make_trainer()
    run_three_steps(trainer)
    before = files(trainer.plan.directory)
    recipe = replace(tiny, learning_rate=1e-4) if what == "recipe" else tiny
    named = r"recipe \(learning_rate\)," if what == "recipe" else "recipe,"
    seed, validation = 2 if what == "seed" else 1, bars if what == "split" else None
    with pytest.raises(TrainingError, match=f"another {named} seed or split"):
        make_trainer(recipe=recipe, seed=seed, validation=validation, resume=True)
    assert before == files(trainer.plan.directory)


@pytest.fixture
def wavering(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Errors on held-out images, as the trainer finds them one after the other."""
    errors = [50.0, 25.0, 25.0, 75.0]
    told = iter(errors)
    monkeypatch.setattr(Task, "errors", lambda *_: {"validation_error_percent": next(told)})
    return errors


@pytest.mark.parametrize("stopped", [False, True])
def test_the_best_weights_are_kept(
    make_trainer: MakeTrainer, bars: Examples, tiny: Recipe, wavering: list[float], *, stopped: bool
) -> None:
    """Those of step 75, the latest with the fewest errors, also if the run was stopped later."""
    recipe = replace(tiny, epochs=100 / 3, keep="best")
    options: dict[str, Any] = {"validation": bars, "recipe": recipe}
    trainer = make_trainer(**options)
    kept: dict[int, Tensor] = {}
    step = trainer.step

    def watch() -> Losses:
        done = step()
        weight = trainer.network.get_parameter("decoder.pixels.weight")
        kept[trainer.done_steps] = weight.detach().clone()
        return done

    trainer.step = watch  # type: ignore[method-assign]
    trainer.run(max_minutes=79.5 if stopped else math.inf, clock=minutes())
    if stopped:
        trainer = make_trainer(resume=True, **options)
        trainer.run()
    saved = Checkpoint.load(trainer.plan.checkpoint_path)
    assert (75, 100, {}) == (saved.runs[-1].kept_step, saved.runs[-1].steps, saved.progress)
    torch.testing.assert_close(kept[75], saved.network["decoder.pixels.weight"], rtol=0, atol=0)
    assert wavering[-1] == trainer.error_percent


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.trace,)


@pytest.fixture
def path(make_trainer: MakeTrainer) -> Path:
    """A checkpoint."""
    trainer = make_trainer()
    run_three_steps(trainer)
    return trainer.plan.checkpoint_path


@pytest.mark.parametrize("share", [0.0, 0.5], ids=["empty", "half of one"])
def test_what_is_left_of_a_checkpoint_is_refused(path: Path, share: float) -> None:
    """With the checkpoint's own error."""
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        Checkpoint.load(path)


def test_a_flipped_bit_is_noticed(path: Path) -> None:
    """A weight that changed on disk is not trained on."""
    content = bytearray(path.read_bytes())
    weight = Checkpoint.load(path).network["votes.weight"]
    content[content.index(weight.numpy().tobytes()) + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="corrupt"):
        Checkpoint.load(path)


def test_code_is_not_executed(path: Path) -> None:
    """A file that would do something when unpickled is refused before it does."""
    trace = path.with_name("trace")
    torch.save({**torch.load(path), "examples": Trap(trace)}, path)
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        Checkpoint.load(path)
    assert not trace.exists()
