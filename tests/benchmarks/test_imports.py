"""Each program of the benchmarks can be started."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import benchmarks

PROGRAMS = sorted(path.stem for path in Path(*benchmarks.__path__).glob("*.py"))


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "__init__"])
def test_a_program_is_imported(name: str) -> None:
    """What it needs of the other packages is still there."""
    assert import_module(f"benchmarks.{name}")
