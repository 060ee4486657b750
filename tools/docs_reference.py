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
from typing import Any

from pydantic import SecretStr

from capsnet import _generated
from capsnet.command.app import app as capsnet_app
from service.app import create_app
from service.settings import Settings

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


def describe_routes() -> Iterator[str]:
    """Markdown of every route, from the OpenAPI document."""
    app = create_app(Settings(admin_keys=(SecretStr("the-docs-need-no-key"),)))  # type: ignore[call-arg]
    document = app.openapi()
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    parameters = {name: [_row(one) for one in it.get("parameters", ())] for name, it in operations}
    common = find_shared(parameters.values())
    yield from ("## Parameters of many routes", "", *table(("parameter", "values", ""), common))
    for name, operation in operations:
        words = [f"{operation['summary']}.", operation.get("description", "")]
        yield from (f"## `{name}`", "", " ".join(words), "")
        if own := [row for row in parameters[name] if row not in common]:
            yield from table(("parameter", "values", ""), own)
        yield from also(row[0] for row in parameters[name] if row in common)
        yield from _answer(operation)


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
    leaves = dict(_leaves(command, name))
    common = find_shared(map(_option, leaf.params) for leaf in leaves.values())
    head = ("option", "default", "")
    if before := [_option(one) for one in command.params if "completion" not in str(one.name)]:
        yield from (f"## Options of `{name}` before a command", "", *table(head, before))
    if common:
        yield from (f"## Options of many commands of `{name}`", "", *table(head, common))
    for title, leaf in leaves.items():
        yield from (f"## `{title}`", "", (leaf.help or "").split("\f")[0], "")
        if leaf.deprecated:
            continue
        rows = [_option(one) for one in leaf.params]
        if own := [row for row in rows if row not in common]:
            yield from table(head, own)
        yield from also(row[0] for row in rows if row in common)


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


def find_shared(lists: Iterable[Iterable[Row]]) -> list[Row]:
    """The rows that four lists or more have, in the order of their first list."""
    used = Counter(row for rows in lists for row in dict.fromkeys(rows))
    return [row for row, count in used.items() if count >= _MANY]


def also(names: Iterable[str]) -> Iterator[str]:
    """A line with what is described elsewhere, or none."""
    if shown := ", ".join(names):
        yield from (f"Also {shown}.", "")


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
