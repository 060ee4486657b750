"""The reference of the Python client, from its docstrings."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, is_dataclass
from itertools import chain, takewhile
from typing import Any, get_overloads

from capsnet import Answer, AsyncCapsNet, CapsNet, CapsNetError, serve
from capsnet._generated import CapsNetMethods
from tools.docs_table import table

COMMON = 4
"""Methods or commands that must share a parameter for it to be described once."""
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
    methods = {
        name: method
        for name, method in chain.from_iterable(vars(kind).items() for kind in kinds)
        if callable(method) and not name.startswith("_") and not hasattr(method, "__deprecated__")
    }
    used = Counter(entry for method in methods.values() for entry in _parameters(method))
    common = [entry for entry, count in used.items() if count >= COMMON]
    if common:
        yield from ("#### Parameters of many methods", "", *common, "")
    for name, method in methods.items():
        yield from (f"#### `{name}`", "", *describe_function(method, common))


def describe_function(function: Callable[..., Any], common: Collection[str] = ()) -> Iterator[str]:
    """Its signatures and docstring; parameters that are `common` only by name."""
    signatures = map(inspect.signature, get_overloads(function) or [function])
    shown = [_QUOTED.sub(r"\1\3", f"{function.__name__}{_shape(one)}") for one in signatures]
    yield from ("```py", *shown, "```", "", *prose(function, common))


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


def prose(described: Any, common: Collection[str] = ()) -> Iterator[str]:
    """A docstring, its sections as lists; parameters that are `common` only by name."""
    blocks = list(_blocks(described))
    kept = [one for one in blocks if one not in common]
    if "Parameters:" in kept and not _parameters_of(kept):
        place = kept.index("Parameters:")
        del kept[place : place + 2]
    yield from kept
    names = [one.split("`")[1] for one in blocks if one in common]
    if names:
        yield from ("", f"Also {', '.join(f'`{name}`' for name in names)}.")
    yield ""


def _parameters(described: Any) -> list[str]:
    """The entries of a docstring's parameters, as Markdown."""
    return _parameters_of(list(_blocks(described)))


def _parameters_of(blocks: list[str]) -> list[str]:
    if "Parameters:" not in blocks:
        return []
    after = blocks[blocks.index("Parameters:") + 2 :]
    return list(takewhile(lambda one: one.startswith("- "), after))


def _blocks(described: Any) -> Iterator[str]:
    """The lines of a docstring as Markdown; each entry of a section is one text."""
    entry = ""
    for line in (inspect.getdoc(described) or "").splitlines():
        section = re.fullmatch(r"(Args|Raises|Returns):", line)
        begun = re.fullmatch(r"    ([\w.]+): (.*)", line)
        if entry and not begun and line.startswith("    "):
            entry += f"\n  {line.strip()}"
            continue
        if entry:
            yield entry
        entry = f"- `{begun[1]}`: {begun[2]}" if begun else ""
        if section:
            yield from (f"{section[1].replace('Args', 'Parameters')}:", "")
        elif not begun:
            yield f"  {line.strip()}" if line.startswith("    ") else line
    if entry:
        yield entry
