"""What a manifest and its entries share: they are pydantic dataclasses that do not change.

An entry of a manifest is a class like `model.bundle.health.Explained` and one line in
`model.bundle.manifest.Manifest`. Reading checks every kind and range that its annotations state.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

ENTRY = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
"""The configuration of the dataclass of an entry."""
Share = Annotated[float, Field(ge=0, le=1)]
Percent = Annotated[float, Field(ge=0, le=100)]
Count = Annotated[int, Field(ge=1)]
Rising = tuple[float, ...]
"""Numbers that do not fall: see `check_rising`."""


def read_strictly(kind: Any, values: Any, file: str) -> Any:
    """Read values of a JSON file as some type.

    Raises:
        ValueError: they are no such values; it names the file and the first fault.
    """
    try:
        return TypeAdapter(kind).validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ValueError(f"{file}: {describe_fault(error)}") from error


def describe_fault(error: ValueError) -> str:
    """The first fault, and where it is, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    fault = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, fault["loc"]))
    text = fault["msg"].removeprefix("Value error, ")
    return f"{where}: {text}" if where else text


def check_rising(*tables: Rising) -> None:
    """Check that no table has a number below the one before it.

    Raises:
        ValueError: one has.
    """
    if any(after < before for table in tables for before, after in pairwise(table)):
        raise ValueError("a table does not rise")
