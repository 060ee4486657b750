"""The reference of the Python client, from its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from capsnet import Answer, AsyncCapsNet, CapsNet, CapsNetError
from tools.docs_table import table


def describe_client() -> Iterator[str]:
    """Markdown of the Python client, from its docstrings."""
    for kind in (CapsNet, AsyncCapsNet):
        yield from (f"### `{kind.__name__}`", "", *_prose(kind))
        yield from _methods(kind)
    yield from ("### Answers", "", "All have `to_dict()`, their JSON.", "")
    for kind in Answer.__subclasses__():
        yield from _answers(kind)
    yield from ("### Errors", "", "All are a `CapsNetError`.", "")
    for error in CapsNetError.__subclasses__():
        yield from (f"#### `{error.__name__}`", "", *_prose(error))


def _methods(kind: type) -> Iterator[str]:
    for name, method in vars(kind).items():
        if name.startswith("_") or not callable(method):
            continue
        signature = inspect.signature(method)
        given = [one for one in signature.parameters.values() if one.name != "self"]
        shown = str(signature.replace(parameters=given)).replace("'", "")
        yield from (f"#### `{name}`", "", "```python", f"{name}{shown}", "```", "", *_prose(method))


def _answers(kind: type) -> Iterator[str]:
    """A type of answer, with its members, then those that have more."""
    members = [(f"`{one.name}`", f"`{one.type}`") for one in fields(kind) if is_dataclass(kind)]
    yield from (f"#### `{kind.__name__}`", "", *_prose(kind))
    yield from table(("member", "type"), members)
    for further in kind.__subclasses__():
        yield from _answers(further)


def _prose(described: Any) -> Iterator[str]:
    """A docstring, its sections as lists."""
    for line in (inspect.getdoc(described) or "").splitlines():
        section = re.fullmatch(r"(Args|Raises|Returns):", line)
        entry = re.fullmatch(r"    (\w+): (.*)", line)
        if section:
            yield from (f"{section[1].replace('Args', 'Parameters')}:", "")
        elif entry:
            yield f"- `{entry[1]}`: {entry[2]}"
        else:
            yield f"  {line.strip()}" if line.startswith("    ") else line
    yield ""
