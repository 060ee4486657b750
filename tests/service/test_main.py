"""`python -m service` with words after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--port", "--port is no option: set CAPSNET_PORT\n"),
        ("--grpc-port=9", "--grpc-port=9 is no option: set CAPSNET_GRPC_PORT\n"),
        ("--colour", ""),
        ("port", ""),
    ],
)
def test_an_option_names_its_variable(option: str, said: str) -> None:
    """Settings are variables; the usage follows, and the exit code is that of wrong usage."""
    command = [sys.executable, "-m", "service", option, "9000"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (2, True) == (ended.returncode, ended.stderr.startswith(f"{said}usage: "))
