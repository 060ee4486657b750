"""The reference of the Python client, from its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any, get_overloads

from capsnet import Answer, AsyncCapsNet, CapsNet, CapsNetError, serve
from capsnet._generated import CapsNetMethods
from tools.docs_table import table

_LINE = 90
_QUOTED = re.compile(r"""(: |-> )(["'])(.*?)\2""")
"""An annotation as `inspect` shows it; a default keeps its quotes."""


def describe_client() -> Iterator[str]:
    """Markdown of the Python client, from its docstrings."""
    yield from ("### `CapsNet`", "", *prose(CapsNet), *describe_methods(CapsNet, CapsNetMethods))
    yield from ("### `AsyncCapsNet`", "", *prose(AsyncCapsNet))
    yield from ("### `serve`", "", *prose(serve))
    yield from ("### Answers", "", "All have `to_dict()`, their JSON.", "")
    for kind in (one for one in Answer.__subclasses__() if one.__module__.startswith("capsnet.")):
        yield from _answers(kind)
    yield from ("### Errors", "", "All are a `CapsNetError`.", "")
    for error in CapsNetError.__subclasses__():
        yield from (f"#### `{error.__name__}`", "", *prose(error))


def describe_methods(*kinds: type) -> Iterator[str]:
    """Headings, signatures and docstrings of the public methods of classes."""
    for name, method in chain.from_iterable(vars(kind).items() for kind in kinds):
        if name.startswith("_") or not callable(method) or hasattr(method, "__deprecated__"):
            continue
        yield from (f"#### `{name}`", "", *describe_function(method))


def describe_function(function: Callable[..., Any]) -> Iterator[str]:
    """Its signatures and docstring."""
    signatures = map(inspect.signature, get_overloads(function) or [function])
    shown = [_QUOTED.sub(r"\1\3", f"{function.__name__}{_shape(one)}") for one in signatures]
    yield from ("```py", *shown, "```", "", *prose(function))


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
    yield from (f"#### `{kind.__name__}`", "", *prose(kind))
    yield from table(("member", "type"), members)
    for further in kind.__subclasses__():
        yield from _answers(further)


def prose(described: Any) -> Iterator[str]:
    """A docstring, its sections as lists."""
    for line in (inspect.getdoc(described) or "").splitlines():
        section = re.fullmatch(r"(Args|Raises|Returns):", line)
        entry = re.fullmatch(r"    ([\w.]+): (.*)", line)
        if section:
            yield from (f"{section[1].replace('Args', 'Parameters')}:", "")
        elif entry:
            yield f"- `{entry[1]}`: {entry[2]}"
        else:
            yield f"  {line.strip()}" if line.startswith("    ") else line
    yield ""
