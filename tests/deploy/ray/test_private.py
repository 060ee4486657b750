"""What Ray writes on this machine, where the service starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
START = """
from pathlib import Path
from deploy.ray.private import started_privately

with started_privately(cpus=1, store_bytes=100_000_000):
    (session,) = Path(Path.cwd(), "tmp").glob("ray-*")
    token = Path.home() / ".ray" / "auth_token"
    print("modes", oct(token.stat().st_mode & 0o777), oct(session.stat().st_mode & 0o777))
    print("has a session", any((session / "ray").glob("session_*")))
print("left", list(Path(Path.cwd(), "tmp").glob("ray-*")))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path: those of Ray's sockets have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        Path(folder, "tmp").mkdir()
        yield Path(folder)


def test_other_users_read_neither_the_token_nor_the_session(home: Path) -> None:
    """The token runs code as the service; Ray's own folders are open to all."""
    environment = {name: text for name, text in os.environ.items() if name != "RAY_AUTH_TOKEN"}
    own = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", START],
        cwd=home,
        env={**environment, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == result.returncode, result.stderr
    lines = result.stdout.splitlines()
    assert "modes 0o600 0o700" in lines
    assert "has a session True" in lines
    assert "left []" in lines
