"""What Ray writes on this machine, where the service starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

import pytest

ROOT = Path(__file__).parents[3]
SHOW = """
(session,) = Path(Path.cwd(), "tmp").glob("ray-*")
token = Path.home() / ".ray" / "auth_token"
print("modes", oct(token.stat().st_mode & 0o777), oct(session.stat().st_mode & 0o777))
"""
FOLDER = """
from pathlib import Path
from deploy.ray.private import private_folder

with private_folder() as folder:
    (folder / "session").mkdir(mode=0o777)
    new = Path(Path.home(), "new")
    new.touch(0o666)
    print("new", oct(new.stat().st_mode & 0o777))
""" + indent(SHOW, "    ")
START = """
from pathlib import Path
from deploy.ray.private import started_privately

with started_privately(cpus=1, store_bytes=100_000_000):
""" + indent(SHOW + 'print("has a session", any((session / "ray").glob("session_*")))', "    ")
LEFT = """
print("left", list(Path(Path.cwd(), "tmp").glob("ray-*")))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path: those of Ray's sockets have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        Path(folder, "tmp").mkdir()
        yield Path(folder)


def test_what_the_service_writes_for_ray_is_its_users_alone(home: Path) -> None:
    """A token of an earlier start, which others can read, is closed to them."""
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").touch(0o644)
    lines = run(FOLDER + LEFT, home)
    assert "new 0o600" in lines
    assert "modes 0o600 0o700" in lines
    assert "left []" in lines


@pytest.mark.ray
def test_other_users_read_neither_the_token_nor_the_session(home: Path) -> None:
    """The token runs code as the service; Ray's own folders are open to all."""
    lines = run(START + LEFT, home)
    assert "modes 0o600 0o700" in lines
    assert "has a session True" in lines
    assert "left []" in lines


def run(script: str, home: Path) -> list[str]:
    """Run a script as a user with this home; the lines that it prints."""
    environment = {name: text for name, text in os.environ.items() if name != "RAY_AUTH_TOKEN"}
    own = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=home,
        env={**environment, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == result.returncode, result.stderr
    return result.stdout.splitlines()
