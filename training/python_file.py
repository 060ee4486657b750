"""Run a Python file of the user's own."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


class PythonFileError(Exception):
    """A file is no Python file."""


def run_file(file: Path) -> ModuleType:
    """Run a file, as `import` would, and return its module. It may declare families and tables.

    Raises:
        PythonFileError: it is none.
    """
    spec = spec_from_file_location(file.stem, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise PythonFileError(f"{file} is no Python file")
    module = sys.modules[file.stem] = module_from_spec(spec)  # dataclasses look annotations up
    spec.loader.exec_module(module)
    return module
