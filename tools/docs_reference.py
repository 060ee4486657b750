"""The reference pages that code writes: `python -m tools.docs_reference docs/reference`.

Each page keeps what is written by hand, up to a marker; what follows the marker is generated. A
test writes all anew and compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from capsnet import _generated
from capsnet.command.app import app as capsnet_app
from tools.client import find_common, operations, read_document

Row = tuple[str, ...]
MARKER = "<!-- `make generate` writes what follows. -->"


def write_page(page: str, generated: Iterable[str]) -> str:
    """A page with its generated part replaced."""
    text = "\n".join([page.partition(MARKER)[0] + MARKER, "", *generated])
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip() + "\n"


class Section(NamedTuple):
    """One route or command."""

    text: str
    rows: list[Row]
    """Its parameters or options."""
    further: tuple[str, ...] = ()
    """The lines after them."""


def describe_routes() -> Iterator[str]:
    """Markdown of every route, from the OpenAPI document."""
    sections = {
        f"{method.upper()} {path}": Section(
            f"{operation['summary']}. {operation.get('description', '')}",
            [_row(one) for one in operation.get("parameters", ())],
            tuple(_answer(operation)),
        )
        for method, path, operation in operations(read_document())
    }
    yield from write_sections("Parameters of many routes", ("parameter", "values", ""), sections)


def _answer(operation: dict[str, Any]) -> Iterator[str]:
    """The schema of an answer, and what a PNG shows."""
    content = operation["responses"]["200"].get("content", {})
    reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
    if name := reference.rpartition("/")[2]:
        link = f"(python.md#capsnet._generated.{name})"
        yield from (
            f"Answer: [`{name}`]{link}" if name in _generated.__all__ else f"Answer: `{name}`",
            "",
        )
    if "image/png" in content:
        yield from (f"PNG: {content['image/png']['schema']['description']}", "")


def _row(parameter: dict[str, Any]) -> Row:
    schema = parameter["schema"]
    words = [_values(schema.get("anyOf", [schema])[0])]
    if schema.get("default") is not None:
        default = json.dumps(schema["default"]).strip('"')
        words.append(f"default `{default}`")
    return f"`{parameter['name']}`", ", ".join(words), parameter.get("description", "")


def _values(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum")
    bounds = f" {low} to {high}" if high is not None else f" from {low}" if low is not None else ""
    return str(schema.get("type", "")) + bounds


def describe_commands() -> Iterator[str]:
    """Markdown of every command of `capsnet`, `python -m training` and `python -m research`."""
    from typer.main import get_command  # noqa: PLC0415  torch is slow to import

    from research.__main__ import app as research_app  # noqa: PLC0415
    from training.__main__ import app  # noqa: PLC0415

    yield from _commands(get_command(capsnet_app), "capsnet")
    yield from _commands(get_command(app), "python -m training")
    yield from _commands(get_command(research_app), "python -m research")


def _commands(command: Any, name: str) -> Iterator[str]:
    head = ("option", "default", "")
    if before := [_option(one) for one in command.params if "completion" not in str(one.name)]:
        yield from (f"## Options of `{name}` before a command", "", *table(head, before))
    sections = {
        f"{name} {child.name}": Section(
            (child.help or "").split("\f")[0], [*map(_option, child.params)]
        )
        for child in command.commands.values()
    }
    yield from write_sections(f"Options of many commands of `{name}`", head, sections)


def _option(one: Any) -> Row:
    """The row of an option or argument."""
    given = ", ".join(f"`{option}`" for option in one.opts)
    if one.param_type_name == "argument":
        given = f"`{str(one.name).upper()}`"
    plain = one.default is None or one.default is False or callable(one.default)
    return given, "" if plain else f"`{one.default}`", getattr(one, "help", None) or ""


def write_sections(title: str, head: Row, sections: dict[str, Section]) -> Iterator[str]:
    """A table of the rows that four sections or more have, under its title; then each section."""
    common = find_common(section.rows for section in sections.values())
    if common:
        yield from (f"## {title}", "", *table(head, common))
    for name, section in sections.items():
        yield from (f"## `{name}`", "", section.text, "")
        if own := [row for row in section.rows if row not in common]:
            yield from table(head, own)
        if shown := ", ".join(row[0] for row in section.rows if row in common):
            yield from (f"Also {shown}.", "")
        yield from section.further


def table(head: Row, rows: list[Row]) -> Iterator[str]:
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


GENERATED = {
    "api.md": describe_routes,
    "command-line.md": describe_commands,
}
"""What writes the end of each page."""


def main(folder: Path) -> None:
    """Write every page anew."""
    for name, generate in GENERATED.items():
        page = folder / name
        page.write_text(write_page(page.read_text(), generate()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
