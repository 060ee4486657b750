from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator
from itertools import count

import pytest
import torch

from tests.training.runs import MakeTrainer, minutes
from training.state import Checkpoint, TrainingError


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def stop_signal(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """A signal that fails the test wherever the trainer does not catch it."""

    def fail(*_: object) -> None:
        pytest.fail("the signal was not caught")

    number: signal.Signals = request.param
    before = signal.signal(number, fail)
    yield number
    signal.signal(number, before)


def stopped_by(number: signal.Signals, *, step: int) -> Callable[[], float]:
    """A clock that sends this process a signal when it is looked at after a step."""

    def ticks() -> Iterator[float]:
        yield from [0.0] * step
        os.kill(os.getpid(), number)
        yield from count()

    return ticks().__next__


def test_a_run_stops_when_its_time_is_up(make_trainer: MakeTrainer) -> None:
    """After the first step beyond the limit it is over, not complete, and saved as it is."""
    trainer = make_trainer()
    finished = trainer.run(max_minutes=2.5, clock=minutes())
    assert (False, 3) == (finished, trainer.done_steps)
    checkpoint = Checkpoint.load(trainer.plan.directory / "checkpoint.pt")
    assert 3 == checkpoint.run.steps
    torch.testing.assert_close(
        dict(trainer.network.state_dict()), checkpoint.network, rtol=0, atol=0
    )


def test_a_signal_stops_and_saves(make_trainer: MakeTrainer, stop_signal: signal.Signals) -> None:
    """The step under way is finished and saved; afterwards signals do what they did before."""
    before = signal.getsignal(stop_signal)
    trainer = make_trainer()
    finished = trainer.run(clock=stopped_by(stop_signal, step=2))
    checkpoint = Checkpoint.load(trainer.plan.directory / "checkpoint.pt")
    assert (False, 2) == (finished, checkpoint.run.steps)
    assert before is signal.getsignal(stop_signal)


@pytest.mark.parametrize(
    ("log_every", "message"), [(1, "loss is not finite"), (100, "is not finite")]
)
@pytest.mark.parametrize("max_minutes", [2.5, math.inf])
def test_a_loss_that_is_not_a_number_ends_the_run(
    make_trainer: MakeTrainer, log_every: int, message: str, max_minutes: float
) -> None:
    """Whether noticed in a line of metrics or when saving, the last good checkpoint is kept."""
    trainer = make_trainer()
    trainer.run(max_minutes=2.5, clock=minutes())
    path = trainer.plan.directory / "checkpoint.pt"
    before = path.read_bytes()
    trainer.network.get_parameter("votes.weight").data[0, 0, 0] = math.nan
    with pytest.raises(TrainingError, match=message):
        trainer.run(log_every=log_every, max_minutes=max_minutes, save_every_s=90, clock=minutes())
    assert before == path.read_bytes()
