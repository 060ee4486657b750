"""The tutorial on routing, followed from its file to the table, on made-up digits."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from model.capsnet import FAMILIES, build, config_from_dict
from research.__main__ import app, main
from research.rows import Table
from research.run import Sets
from research.tables import ROWS, TABLES, add_table
from training.__main__ import app as training_app
from training.data.datasets import Examples

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "own-routing.md"


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the tutorial; what it declares is gone after the test."""
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "own_routing.py"
    file.write_text(source)
    for declared in (ROWS, TABLES):
        for name in ("own", "own-sharp", "own-plain"):
            monkeypatch.setitem(declared, name, None)  # so that they are removed at the end
            del declared[name]
    digits = np.random.default_rng(0).integers(0, 256, (80, 1, 28, 28), np.uint8)
    made_up = Examples(digits, np.arange(80) % 10)
    monkeypatch.setattr("research.__main__.load_sets", lambda *_: Sets(made_up, made_up))
    return file


def test_a_routing_of_your_own_is_a_compared_row(own_file: Path, tmp_path: Path) -> None:
    """With two seeds each; the commands are the page's, with fewer images."""
    commands = re.findall(r"^python -m research (.*)$", PAGE.read_text(), re.MULTILINE)
    runs = ["--runs-dir", str(tmp_path / "runs"), "--docs-dir", str(tmp_path / "docs")]
    for command in commands:
        words = command.replace("own_routing.py", str(own_file)).split()
        seeds = ["--seeds", "1,2", "--device", "cpu"] if words[0] == "run" else []
        options = [*words, *runs, *seeds, "--images", "64"]
        outcome = CliRunner().invoke(app, options)
        assert 0 == outcome.exit_code, outcome.output
        for name in ("own", "own-sharp", "own-plain"):  # each command is a process of its own
            ROWS.pop(name, None)
            TABLES.pop(name, None)
    assert re.search(
        r"\| `own-sharp` \| sharpened agreement \| 64 \| .* \| 1, 2 \|", outcome.output
    )
    assert "| **sharpened agreement** less **routing by agreement** | " in outcome.output
    assert not (tmp_path / "docs").exists()


def test_a_family_of_your_own_is_known_to_training(
    own_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its file ran; before, the error names the option."""
    described = {"family": "sharp", "channels": 1}
    with pytest.raises(ValueError, match="training --file"):
        config_from_dict(described)
    monkeypatch.setitem(FAMILIES, "sharp", FAMILIES["dynamic"])  # so that it is removed at the end
    outcome = CliRunner().invoke(training_app, ["--file", str(own_file), "presets"])
    assert 0 == outcome.exit_code, outcome.output
    assert "SharpCapsNet" == type(build(config_from_dict(described))).__name__


def test_a_file_that_is_no_python_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, without a traceback; by training in a process of its own."""
    file = tmp_path / "notes.txt"
    file.write_text("no Python")
    words = [sys.executable, "-m", "training", "--file", str(file), "presets"]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (1, f"{file} is no Python file\n") == (answer.returncode, answer.stderr)
    monkeypatch.setattr("sys.argv", ["research", "list", "--file", str(file)])
    with pytest.raises(SystemExit, match="1"):
        main()
    assert f"{file} is no Python file\n" == capsys.readouterr().err


def test_names_are_not_taken_twice() -> None:
    """A row of the page keeps its meaning."""
    row = ROWS["matched-few-100-cnn-small"]
    with pytest.raises(ValueError, match="matched-few-100-cnn-small already"):
        add_table("another", Table((row,)))
