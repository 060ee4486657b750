"""The reference of the Python client, from its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any, get_overloads

from capsnet import Answer, AsyncCapsNet, CapsNet, CapsNetError, serve
from capsnet._generated import CapsNetMethods
from tools.docs_table import table

_LINE = 90


def describe_client() -> Iterator[str]:
    """Markdown of the Python client, from its docstrings."""
    yield from ("### `CapsNet`", "", *_prose(CapsNet), *_methods(CapsNet, CapsNetMethods))
    yield from ("### `AsyncCapsNet`", "", *_prose(AsyncCapsNet))
    yield from ("### `serve`", "", *_prose(serve))
    yield from ("### Answers", "", "All have `to_dict()`, their JSON.", "")
    for kind in Answer.__subclasses__():
        yield from _answers(kind)
    yield from ("### Errors", "", "All are a `CapsNetError`.", "")
    for error in CapsNetError.__subclasses__():
        yield from (f"#### `{error.__name__}`", "", *_prose(error))


def _methods(*kinds: type) -> Iterator[str]:
    for name, method in chain.from_iterable(vars(kind).items() for kind in kinds):
        if name.startswith("_") or not callable(method):
            continue
        signatures = map(inspect.signature, get_overloads(method) or [method])
        shown = [f"{name}{_shape(one)}".replace("'", "") for one in signatures]
        yield from (f"#### `{name}`", "", "```py", *shown, "```", "", *_prose(method))


def _shape(signature: inspect.Signature) -> str:
    """Parameters and result, on one line or with a line for each parameter."""
    given = [one for one in signature.parameters.values() if one.name != "self"]
    line = str(signature.replace(parameters=given))
    if len(line) <= _LINE:
        return line
    named = [str(one) for one in given if one.kind is one.KEYWORD_ONLY]
    lines = [*map(str, given[: len(given) - len(named)]), *(["*", *named] if named else [])]
    inside = "".join(f"    {one},\n" for one in lines)
    return f"(\n{inside}) -> {signature.return_annotation}"


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
