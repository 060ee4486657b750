"""The reference pages that code writes: `python -m tools.docs_reference docs/reference`.

Each page keeps what is written by hand, up to a marker; what follows the marker is generated. A
test writes all anew and compares.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from capsnet import _generated
from capsnet.command.app import app as capsnet_app
from tools.client import read_document

Row = tuple[str, ...]
ROOT = Path(__file__).parent.parent
_MANY = 4
"""A row that so many lists have is shown once."""
MARKER = "<!-- `make generate` writes what follows. -->"


def write_page(page: str, generated: Iterable[str]) -> str:
    """A page with its generated part replaced."""
    by_hand, marker, _ = page.partition(MARKER)
    if not marker:
        raise ValueError(f"the page has no line {MARKER}")
    text = "\n".join([by_hand + marker, "", *generated])
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip() + "\n"


def list_cards() -> Iterator[str]:
    """Links to the cards of the bundles that ship, from a page of the reference."""
    for card in sorted((ROOT / "model" / "bundles").glob("*/CARD.md")):
        yield f"- [{card.parent.name}](../../{card.relative_to(ROOT).as_posix()})"


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
        for path, methods in read_document()["paths"].items()
        for method, operation in methods.items()
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


def _options(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]


def _row(parameter: dict[str, Any]) -> Row:
    schema = parameter["schema"]
    words = [_values(_options(schema)[0])]
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
        title: Section((leaf.help or "").split("\f")[0], [*map(_option, leaf.params)])
        for title, leaf in _leaves(command, name)
    }
    yield from write_sections(f"Options of many commands of `{name}`", head, sections)


def _leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The commands of a group and of its groups, by what is typed."""
    for child in getattr(command, "commands", {}).values():
        yield from _leaves(child, f"{name} {child.name}")
    if not hasattr(command, "commands"):
        yield name, command


def _option(one: Any) -> Row:
    """The row of an option or argument."""
    given = ", ".join(f"`{option}`" for option in one.opts)
    if one.param_type_name == "argument":
        given = f"`{str(one.name).upper()}`"
    plain = one.default is None or one.default is False or callable(one.default)
    return given, "" if plain else f"`{one.default}`", getattr(one, "help", None) or ""


def write_sections(title: str, head: Row, sections: dict[str, Section]) -> Iterator[str]:
    """A table of the rows that four sections or more have, under its title; then each section."""
    used = Counter(row for section in sections.values() for row in section.rows)
    common = [row for row, count in used.items() if count >= _MANY]
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
    "bundle.md": list_cards,
    "command-line.md": describe_commands,
}
"""What writes the end of each page."""


def main(folder: Path) -> None:
    """Write every page anew; that of the commands, where torch is installed."""
    for name, generate in GENERATED.items():
        if generate is describe_commands and find_spec("torch") is None:
            continue
        page = folder / name
        page.write_text(write_page(page.read_text(), generate()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
