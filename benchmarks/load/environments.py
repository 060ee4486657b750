"""A virtual environment for each baseline, from its pinned requirements."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.load.servers import ROOT, RUNS

NAMES = ("fastapi", "bentoml", "litserve", "ray", "triton")
DEBIAN_PYTHON = Path("/usr/bin/python3")
"""What Triton's Python backend embeds needs the standard library that it was built for."""


def interpreter(name: str) -> str:
    """The environment's Python."""
    return str(_folder(name) / "bin" / "python")


def requirements(name: str) -> Path:
    """Its pinned packages."""
    return ROOT / "benchmarks" / f"requirements-{name}.txt"


def set_up(name: str) -> None:
    """Make the environment anew if its requirements changed."""
    pinned, stamp = requirements(name).read_text(), _folder(name) / "requirements.txt"
    if stamp.exists() and stamp.read_text() == pinned:
        return
    base = DEBIAN_PYTHON if name == "triton" and DEBIAN_PYTHON.exists() else Path(sys.executable)
    subprocess.run([base, "-m", "venv", "--clear", _folder(name)], check=True)
    install = (interpreter(name), "-m", "pip", "install", "--quiet", "--requirement")
    subprocess.run([*install, requirements(name)], check=True)
    stamp.write_text(pinned)


def is_set_up(name: str) -> bool:
    """Whether the environment holds what its requirements say."""
    stamp = _folder(name) / "requirements.txt"
    return stamp.exists() and stamp.read_text() == requirements(name).read_text()


def _folder(name: str) -> Path:
    return RUNS / "environments" / name
