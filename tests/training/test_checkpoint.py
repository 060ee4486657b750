from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from model.capsnet.matrix import MatrixConfig
from training.provenance import Run
from training.recipes import Recipe
from training.state import Checkpoint, CheckpointError
from training.training_data import FolderSplit

WEIGHTS = torch.arange(500, dtype=torch.float32)


class Trap:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.trace,)


@pytest.fixture
def checkpoint() -> Checkpoint:
    """Some run's state."""
    run = Run(id="a1", preset="r", dataset="mnist", task="single", seed=1, held_out=0)
    return Checkpoint(
        recipe=Recipe("r", network=MatrixConfig(decoder_hidden=(8, 8)), epochs=0.5),
        pictures=FolderSplit(folder="/pets", class_names=("cat", "dog"), count=500),
        examples=55_000,
        runs=(replace(run, steps=9, devices=("CPU",), taken=("conv.weight",)), run),
        network={"conv.weight": WEIGHTS},
        trained=None,
        optimiser={"state": {0: {"exp_avg": WEIGHTS / 7}}, "param_groups": [{"lr": 0.1}]},
    )


@pytest.fixture
def path(tmp_path: Path, checkpoint: Checkpoint) -> Path:
    """Where that state has been saved."""
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path)
    return path


def test_a_failed_save_leaves_the_old_state(path: Path, checkpoint: Checkpoint) -> None:
    """A state that cannot be written does not harm the one on disk."""
    before = path.read_bytes()
    unwritable: dict[str, Any] = {"weights": WEIGHTS, "function": lambda: None}
    with pytest.raises(Exception, match="pickle"):
        replace(checkpoint, network=unwritable).save(path)
    assert before == path.read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"this is no checkpoint", id="text"),
        pytest.param(0.5, id="half of one"),
    ],
)
def test_other_files_are_refused(path: Path, content: bytes | float) -> None:
    """Whatever lies there, or is left of a checkpoint, ends in the checkpoint's own error."""
    if isinstance(content, float):
        whole = path.read_bytes()
        content = whole[: int(content * len(whole))]
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        Checkpoint.load(path)


def test_a_flipped_bit_is_noticed(path: Path) -> None:
    """A weight that changed on disk is not trained on."""
    content = bytearray(path.read_bytes())
    content[content.index(WEIGHTS.numpy().tobytes()) + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="corrupt"):
        Checkpoint.load(path)


READABLE = "not a readable checkpoint"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            {"recipe": {"name": "r", "network": {}, "colour": "red"}}, READABLE, id="recipe"
        ),
        pytest.param({"recipe": {"name": "r"}}, READABLE, id="no network"),
        pytest.param({"colour": "red"}, READABLE, id="field"),
        pytest.param({"version": 4}, "another version", id="a later trainer's"),
    ],
)
def test_unknown_content_is_refused(path: Path, change: dict[str, Any], message: str) -> None:
    """A readable file that does not describe a run of ours ends in the checkpoint's own error."""
    torch.save({**torch.load(path), **change}, path)
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.load(path)


def test_code_is_not_executed(path: Path) -> None:
    """A file that would do something when unpickled is refused before it does."""
    trace = path.with_name("trace")
    torch.save({**torch.load(path), "examples": Trap(trace)}, path)
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        Checkpoint.load(path)
    assert not trace.exists()
