"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterator


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
