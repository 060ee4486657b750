from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from training.device import Processes
from training.metrics import METRICS, TENSORBOARD, Meter, RunLog
from training.state import TrainingError

LINE = {"step": 10, "epoch": 0.5, "spread_loss": 0.25, "images_per_s": 99.0}


def write(log: RunLog, **changes: float) -> None:
    """Add a line while the bar is shown."""
    with log.shown("run", total=20, done=0):
        log.add(**{**LINE, **changes})


def test_a_meter_means_any_terms() -> None:
    """Whatever the terms of the loss are called, their means have their names."""
    meter = Meter(Processes(), now=0)
    for loss in (1.0, 3.0):
        meter.add({"spread": torch.tensor(loss), "drawing": torch.tensor(10 * loss)})
    assert {"spread_loss": 2.0, "drawing_loss": 20.0} == meter.means()


def test_a_meter_starts_anew() -> None:
    """Speed and means are those since it was last read."""
    meter = Meter(Processes(), now=0)
    for second, loss in ((2, 1.0), (6, 5.0)):
        meter.add({"margin": torch.tensor(loss)})
        assert {"margin_loss": loss} == meter.means()
        rate = meter.restart(second)
    assert 0.25 == rate


def test_lines_are_kept_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line of JSON in the file, its losses in the log."""
    write(RunLog(tmp_path, keep_until=0))
    assert LINE == json.loads((tmp_path / METRICS).read_text())
    assert "step 10/20: 99 images/s, spread 0.2500" in capsys.readouterr().out


def test_a_quiet_log_is_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Processes that do not lead write and show nothing."""
    write(RunLog(tmp_path / "run", keep_until=0, quiet=True))
    assert ([], "") == (list(tmp_path.iterdir()), capsys.readouterr().out)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_the_same_values(tmp_path: Path) -> None:
    """Each value but the step is a series; what an interrupted run wrote too much is forgotten."""
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
    log = RunLog(tmp_path, keep_until=0, tensorboard=True)
    write(log)
    write(log, step=20, spread_loss=0.5)
    write(RunLog(tmp_path, keep_until=10, tensorboard=True), step=15, spread_loss=0.125)
    events = event_accumulator.EventAccumulator(str(tmp_path / TENSORBOARD)).Reload()
    assert {"epoch", "spread_loss", "images_per_s"} == set(events.Tags()["scalars"])
    series = [(event.step, event.value) for event in events.Scalars("spread_loss")]
    assert [(10, 0.25), (15, 0.125)] == series


def test_tensorboard_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install, and nothing is begun."""
    for name in ("tensorboard", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TrainingError, match="needs the package tensorboard"):
        RunLog(tmp_path / "run", keep_until=0, tensorboard=True)
    assert not (tmp_path / "run").exists()
