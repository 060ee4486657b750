"""The reference of the Python client, from its docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, is_dataclass
from itertools import chain, groupby, takewhile
from typing import Any, get_overloads

from capsnet import Answer, AsyncCapsNet, CapsNet, CapsNetError, serve
from capsnet._generated import Methods, ViewMethods
from tools.docs_table import also, find_shared, table

_LINE = 90
_QUOTED = re.compile(r"""(: |-> )(["'])(.*?)\2""")
"""An annotation as `inspect` shows it; a default keeps its quotes."""


def describe_client() -> Iterator[str]:
    """Markdown of the Python client, from its docstrings."""
    yield from (
        "### `CapsNet`",
        "",
        *prose(CapsNet),
        *describe_methods(CapsNet, Methods, ViewMethods),
    )
    yield from ("### `AsyncCapsNet`", "", *prose(AsyncCapsNet))
    yield from ("### `serve`", "", *prose(serve))
    kinds = [one for one in _subclasses(Answer) if one.__module__.startswith("capsnet.")]
    shared = find_shared(map(_members, kinds))
    yield from ("### Answers", "", "All have `to_dict()`, their JSON. Many have these members:", "")
    yield from table(("member", "type"), shared)
    for kind in kinds:
        yield from (f"#### `{kind.__name__}`", "", *prose(kind))
        if own := [row for row in _members(kind) if row not in shared]:
            yield from table(("member", "type"), own)
        yield from also(row[0] for row in _members(kind) if row in shared)
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
    common = find_shared(map(_parameters, methods.values()))
    if common:
        yield from ("#### Parameters of many methods", "")
        yield from ("Signatures name them without types.", "")
        yield from (*(_typed(entry, methods.values()) for entry in common), "")
    for name, method in methods.items():
        yield from (f"#### `{name}`", "", *describe_function(method, common))


def describe_function(function: Callable[..., Any], common: Collection[str] = ()) -> Iterator[str]:
    """Its signatures and docstring; parameters that are `common` only by name."""
    names = {_name(entry) for entry in _parameters(function) if entry in common}
    signatures = map(inspect.signature, get_overloads(function) or [function])
    shown = (f"{function.__name__}{_shape(one, names)}" for one in signatures)
    yield from ("```py", *(_QUOTED.sub(r"\1\3", one) for one in shown), "```", "")
    yield from prose(function, common)


def _shape(signature: inspect.Signature, common: Collection[str]) -> str:
    """Parameters and result, on one line or several; `common` parameters without their types."""
    given = [one for one in signature.parameters.values() if one.name != "self"]
    texts = [one.name if one.name in common else str(one) for one in given]
    named = [one.kind is one.KEYWORD_ONLY for one in given]
    if any(named):
        texts.insert(named.index(True), "*")
    line = f"({', '.join(texts)}) -> {signature.return_annotation}"
    if len(line) <= _LINE:
        return line
    groups = groupby(texts, key=lambda one: one in common)
    lines = chain.from_iterable([", ".join(some)] if short else some for short, some in groups)
    inside = "".join(f"    {one},\n" for one in lines)
    return f"(\n{inside}) -> {signature.return_annotation}"


def _typed(entry: str, methods: Collection[Callable[..., Any]]) -> str:
    """The entry of a parameter with its type, from the first method that has both."""
    name = _name(entry)
    method = next(one for one in methods if entry in _parameters(one))
    first = inspect.signature((get_overloads(method) or [method])[0])
    kind = _QUOTED.sub(r"\1\3", str(first.parameters[name]).partition(" = ")[0])
    return entry.replace(f"`{name}`", f"`{kind}`", 1)


def _name(entry: str) -> str:
    """The name of a parameter, from its entry."""
    return entry.split("`")[1]


def _subclasses(kind: type) -> Iterator[type]:
    """All, each before those that derive from it."""
    for one in kind.__subclasses__():
        yield from (one, *_subclasses(one))


def _members(kind: type) -> list[tuple[str, str]]:
    """Name and type of each field of an answer, as code."""
    return [(f"`{one.name}`", f"`{one.type}`") for one in fields(kind) if is_dataclass(kind)]


def prose(described: Any, common: Collection[str] = ()) -> Iterator[str]:
    """A docstring, its sections as lists, without parameters that are `common`."""
    blocks = list(_blocks(described))
    kept = [one for one in blocks if one not in common]
    if "Parameters:" in kept and not _parameters_of(kept):
        place = kept.index("Parameters:")
        del kept[place : place + 2]
    yield from (*"\n".join(kept).rstrip().splitlines(), "")


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
