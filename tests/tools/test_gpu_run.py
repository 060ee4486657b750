from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import PATIENCE_S

ROOT = Path(__file__).parents[2]
SHELL = shutil.which("sh")
WITHOUT_SERVICE = """
import sys
sys.modules.update(dict.fromkeys(["fastapi", "onnxruntime", "pydantic", "starlette"]))
import pytest
sys.exit(pytest.main(sys.argv[3:]))
"""
"""A `python -m pytest` where only what training needs is installed."""
TRAINING = """#!/bin/sh
trap 'sleep 0.2; echo saved; exit' TERM
echo begun
for _ in $(seq 1200); do sleep 0.1; done
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A program in Python's place, of which a test says what it does."""
    path = tmp_path / "python"
    path.touch(mode=0o755)
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where the script keeps everything."""
    return tmp_path / "runs"


def start(python: Path, part: str, runs: Path) -> subprocess.Popen[bytes]:
    assert SHELL is not None
    environment = os.environ | {"RUNS": str(runs)}
    return subprocess.Popen([SHELL, "tools/gpu_run.sh", python, part], cwd=ROOT, env=environment)


def test_a_bare_gpu_machine_can_run_the_tests(python: Path, runs: Path) -> None:
    """Those of training are found where nothing of the service is installed."""
    bare = python.with_name("bare.py")
    bare.write_text(WITHOUT_SERVICE)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {bare} "$@"\n')
    with start(python, "tests", runs) as script:
        assert 0 == script.wait(PATIENCE_S)
    assert re.search(r"[1-9]\d* (passed|skipped)", (runs / "tests.log").read_text())


def test_what_ends_the_script_ends_its_trainings(python: Path, runs: Path) -> None:
    """Each gets the signal, to save, and the script waits for it."""
    python.write_text(TRAINING)
    logs = [runs / f"{name}-1.log" for name in ("fashion-mnist", "fashion-mnist-attention")]
    with start(python, "fashion-mnist", runs) as script:
        end = time.monotonic() + PATIENCE_S
        while not all(log.exists() and log.read_text() for log in logs):
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(0.5)  # the shell notes what it has begun
        script.send_signal(signal.SIGTERM)
        assert 143 == script.wait(PATIENCE_S)
    assert ["begun\nsaved\n"] * 2 == [log.read_text() for log in logs]
