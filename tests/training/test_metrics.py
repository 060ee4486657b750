from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from training.metrics import METRICS, Meter, RunLog

LINE = {"step": 10, "epoch": 0.5, "spread_loss": 0.25, "images_per_s": 99.0}


def test_a_meter_means_any_terms_since_it_was_last_read() -> None:
    """Whatever the terms of the loss are called, their means have their names."""
    meter = Meter(now=0)
    for second, losses in ((4, (1.0, 3.0)), (6, (5.0,))):
        for loss in losses:
            meter.add({"spread": torch.tensor(loss), "drawing": torch.tensor(10 * loss)})
        mean = sum(losses) / len(losses)
        assert {"spread_loss": mean, "drawing_loss": 10 * mean} == meter.means()
        rate = meter.restart(second)
    assert 0.5 == rate


def test_lines_are_kept_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line of JSON in the file, its losses in the log."""
    log = RunLog(tmp_path, keep_until=0)
    with log.shown("run", total=20, done=0):
        log.add(**LINE)
    assert LINE == json.loads((tmp_path / METRICS).read_text())
    assert "step 10/20: 99 images/s, spread 0.2500" in capsys.readouterr().out
