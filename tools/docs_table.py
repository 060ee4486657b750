"""Tables in Markdown, and what many of them share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

_MANY = 4
_Row = TypeVar("_Row", bound=Hashable)


def find_shared(lists: Iterable[Iterable[_Row]]) -> list[_Row]:
    """The rows that four lists or more have, in the order of their first list."""
    used = Counter(row for rows in lists for row in dict.fromkeys(rows))
    return [row for row, count in used.items() if count >= _MANY]


def also(names: Iterable[str]) -> Iterator[str]:
    """A line with what is described elsewhere, or none."""
    if shown := ", ".join(names):
        yield from (f"Also {shown}.", "")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """A table, line by line."""
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(_cell(text) for text in row)} |"
    yield ""


def _cell(text: str) -> str:
    """Text on one line; outside of code, angle brackets are no tags."""
    line = " ".join(text.replace("|", "/").split())
    return line if "`" in line else line.replace("<", "&lt;")
