"""The application behind `python -m training`, to which modules add their commands."""

from __future__ import annotations

import os
import re
import shlex
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console

from model.bundle import BundleError
from model.runtime import DeviceError
from training.data.pictures import printable
from training.data.source import DatasetError
from training.recipes import SettingError
from training.state import TrainingError

console = Console(highlight=False, markup=False, soft_wrap=True)
BundleName = Annotated[
    str, typer.Argument(help="Name of a shipped bundle, or a folder that `export` wrote.")
]
DataDir = Annotated[
    Path,
    typer.Option(
        envvar="CAPSNET_DATA_DIR", help="Folder of data sets; missing files are downloaded."
    ),
]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Leave out files that cannot be read.")
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Replace a bundle of that name, whatever made it.")
]
DATA_DIR = Path("data")


def run_file(file: Path) -> ModuleType:
    """Run a file, as `import` would, and return its module. It may declare families and tables.

    Raises:
        TrainingError: it is none.
    """
    spec = spec_from_file_location(file.stem, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise TrainingError(f"{file} is no Python file")
    module = sys.modules[file.stem] = module_from_spec(spec)  # dataclasses look annotations up
    spec.loader.exec_module(module)
    return module


EXPECTED = (TrainingError, DatasetError, DeviceError, BundleError, SettingError)
"""Errors that are printed as one line, without a traceback."""


app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def declare(
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="A Python file that declares families of your own."
        ),
    ] = None,
) -> None:
    """Train, export and evaluate capsule networks."""
    if file is not None:
        run_file(file)


def typed_command() -> str:
    """The command as it was typed, for a card that others may read.

    Absolute paths may tell whose machine it was. Those near the current folder are written from
    there, so that the command still runs in it; of others only the last part is kept.
    """

    def without_machine(path: re.Match[str]) -> str:
        relative = os.path.relpath(path[0])
        return Path(path[0]).name if relative.startswith("../../..") else relative

    words = [re.sub(r"(?:^|(?<==))/.*", without_machine, word) for word in sys.argv[1:]]
    return printable(shlex.join(["python", "-m", "training", *words]))
