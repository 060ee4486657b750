from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from benchmarks import families
from research.controls import HeadConfig
from tests.model.capsnet.networks import SMALL
from training.recipes import Recipe


@pytest.mark.usefixtures("families")
def test_controls_take_turns_with_the_families(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The linear layer, which is a family in experiments alone, is measured like the others."""
    attention: Any = SMALL["attention"]
    linear = HeadConfig(
        **{
            one.name: getattr(attention, one.name)
            for one in fields(HeadConfig)
            if hasattr(attention, one.name)
        }
    )
    facts: Any = {"batch_size": 4, "loss": "cross-entropy", "mse_weight": 0}
    recipes = {
        families.REFERENCE: Recipe("reference", network=SMALL["baseline"], **facts),
        "linear": Recipe("linear", network=linear, **facts),
    }
    monkeypatch.setattr(families, "RECIPES", recipes)
    target = tmp_path / "speeds.json"
    result = CliRunner().invoke(families.app, ["--rounds", "1", "--write", str(target)])
    assert 0 == result.exit_code, result.output
    assert {*recipes} == {*json.loads(target.read_text())["networks"]}
