"""What tests read of training runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any, TypeAlias

from torch import Tensor

from training.trainer import Trainer

MakeTrainer: TypeAlias = Callable[..., Trainer]
"""`make_trainer` of conftest.py."""


def metrics(trainer: Trainer) -> list[dict[str, Any]]:
    """The lines of the run's metrics."""
    lines = (trainer.plan.directory / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def weights(trainer: Trainer) -> dict[str, Tensor]:
    """A copy of the network's weights."""
    return {name: weight.clone() for name, weight in trainer.network.state_dict().items()}


def minutes() -> Callable[[], float]:
    """A clock that is a minute later each time it is looked at: once a step."""
    return count(step=60.0).__next__
