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


@pytest.mark.parametrize("field", ["recipe", "pictures", "examples", "runs"])
def test_what_is_saved_is_loaded(path: Path, checkpoint: Checkpoint, field: str) -> None:
    """A run's description comes back equal."""
    assert getattr(checkpoint, field) == getattr(Checkpoint.load(path), field)


@pytest.mark.parametrize("field", ["network", "optimiser"])
def test_tensors_come_back_bit_by_bit(path: Path, checkpoint: Checkpoint, field: str) -> None:
    """The network's and the optimiser's state come back exactly."""
    expected, actual = getattr(checkpoint, field), getattr(Checkpoint.load(path), field)
    torch.testing.assert_close(expected, actual, rtol=0, atol=0)


def test_saving_replaces_the_old_state(path: Path, checkpoint: Checkpoint) -> None:
    """The latest state is the one loaded; what a kill left half-written is no obstacle."""
    path.with_name("checkpoint.pt.tmp").write_bytes(b"half a checkpoint")
    replace(checkpoint, examples=121).save(path)
    assert 121 == Checkpoint.load(path).examples
    assert [path] == list(path.parent.iterdir())


def test_a_failed_save_leaves_the_old_state(path: Path, checkpoint: Checkpoint) -> None:
    """A state that cannot be written does not harm the one on disk."""
    before = path.read_bytes()
    unwritable: dict[str, Any] = {"weights": WEIGHTS, "function": lambda: None}
    with pytest.raises(Exception, match="pickle"):
        replace(checkpoint, network=unwritable).save(path)
    assert before == path.read_bytes()


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    """The message says where a checkpoint was looked for."""
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*nowhere\.pt"):
        Checkpoint.load(tmp_path / "nowhere.pt")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"this is no checkpoint", id="text"),
        pytest.param(b"0", id="an odd pickle"),
        pytest.param(bytes(4000), id="zeros"),
        *(pytest.param(share, id=f"{share:.1%} of one") for share in (0.1, 0.5, 0.9, 0.999)),
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


@pytest.mark.parametrize("value", [[1, 2], WEIGHTS, 7], ids=["list", "tensor", "number"])
def test_other_saved_values_are_refused(path: Path, value: object) -> None:
    """So does a file of something else than a run."""
    torch.save(value, path)
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        Checkpoint.load(path)


def test_code_is_not_executed(path: Path) -> None:
    """A file that would do something when unpickled is refused before it does."""
    trace = path.with_name("trace")
    torch.save({**torch.load(path), "examples": Trap(trace)}, path)
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        Checkpoint.load(path)
    assert not trace.exists()
