from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.processes.folder import hold, own_folder

LEAVE = """
import sys
from service.processes.folder import own_folder

with own_folder() as folder:
    (folder / "copy").write_text("bytes")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def start() -> tuple[subprocess.Popen[str], Path]:
    """A process that has a folder of its own, and the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", LEAVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    return process, Path(process.stdout.readline().strip())


def test_a_start_removes_what_a_killed_service_left(tmp_path: Path) -> None:
    """SIGKILL leaves a folder, which the next start removes; other folders stay."""
    process, left = start()
    (tmp_path / "capsnet-of-somebody").mkdir()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (left / "copy").exists()
    with own_folder():
        assert not left.exists()
        assert (tmp_path / "capsnet-of-somebody").exists()


def test_a_start_leaves_the_folder_of_a_service_that_runs() -> None:
    """Two services may share TMPDIR."""
    process, own = start()
    with own_folder():
        assert (own / "copy").exists()
    process.communicate("")
    assert not own.exists()


def test_a_worker_that_outlives_its_supervisor_keeps_the_folder() -> None:
    """It drains, and reads its copies until then."""
    process, left = start()
    holding = hold(left)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with own_folder():
        assert (left / "copy").exists()
    os.close(holding)
    with own_folder():
        assert not left.exists()
