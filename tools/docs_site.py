"""MkDocs' hooks: pages that come from code and from elsewhere in the repository.

In a page `<!-- routes -->` becomes what the OpenAPI document says of routes, `<!-- commands -->`
what the command lines say of themselves, `<!-- client -->` what the client's docstrings say,
`<!-- cards -->` links to the bundles' cards. These and the README's kind are pages too.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import SecretStr

from capsnet.command.app import app as capsnet_app
from service.app import create_app
from service.settings import Settings
from tools.docs_client import describe_client
from tools.docs_table import table

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
} | {
    str(card.relative_to(ROOT)): f"cards/{card.parent.name}/index.md"
    for card in sorted((ROOT / "model" / "bundles").glob("*/CARD.md"))
}
"""Files outside docs that are pages: from the repository's root, and in the site."""
_LINK = re.compile(r"\]\(([\w./-]+)(#[\w-]+)?\)")
_COMMON = 4
"""Routes that must share a parameter for it to be described once."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs, and the cards' pictures."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
        if target.startswith("cards/"):
            for picture in sorted((ROOT / source).parent.glob("*.png")):
                uri = f"{PurePosixPath(target).parent}/{picture.name}"
                files.append(File.generated(config, uri, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links at the pages of the site, and fill in what code says."""
    here = page.file.src_uri
    source = next((ROOT / file for file, uri in PAGES.items() if uri == here), ROOT / "docs" / here)

    def link(match: re.Match[str]) -> str:
        file = Path(os.path.normpath(source.parent / match[1])).relative_to(ROOT)
        inside = file.relative_to("docs").as_posix() if file.parts[:1] == ("docs",) else None
        uri = PAGES.get(file.as_posix(), inside)
        if uri is None or here == uri:
            return match[0]
        return f"]({os.path.relpath(uri, PurePosixPath(here).parent)}{match[2] or ''})"

    markdown = _LINK.sub(link, markdown)
    if "<!-- routes -->" in markdown:
        markdown = markdown.replace("<!-- routes -->", "\n".join(describe_routes()))
    if "<!-- cards -->" in markdown:
        markdown = markdown.replace("<!-- cards -->", "\n".join(list_cards()))
    if "<!-- client -->" in markdown:
        markdown = markdown.replace("<!-- client -->", "\n".join(describe_client()))
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", "\n".join(describe_commands()))
    return markdown


def list_cards() -> Iterator[str]:
    """Links to the cards of the bundles that ship, from a page one folder down."""
    for uri in PAGES.values():
        if uri.startswith("cards/"):
            yield f"- [{PurePosixPath(uri).parent.name}](../{uri})"


def describe_routes() -> Iterator[str]:
    """Markdown of every route, from the OpenAPI document."""
    app = create_app(Settings(admin_keys=(SecretStr("this-site-needs-no-key"),)))
    document = app.openapi()
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    used = Counter(_row(one) for _, it in operations for one in it.get("parameters", ()))
    common = {row for row, count in used.items() if count >= _COMMON}
    yield from ("### Parameters of many routes", "")
    yield from table(("parameter", "values", ""), [row for row in used if row in common])
    for name, operation in operations:
        parameters = [_row(one) for one in operation.get("parameters", ())]
        many = [row[0] for row in parameters if row in common]
        own = [row for row in parameters if row not in common]
        words = [f"{operation['summary']}.", operation.get("description", "")]
        yield from (f"### `{name}`", "", " ".join(words), "")
        if own:
            yield from table(("parameter", "values", ""), own)
        if many:
            yield from (f"Also {', '.join(many)}.", "")
        answer = operation["responses"]["200"].get("content", {})
        schema = answer.get("application/json", {}).get("schema")
        if schema:
            yield from table(("response field", "type", ""), _members(schema, document))
        if "image/png" in answer:
            yield from (f"PNG: {answer['image/png']['schema']['description']}", "")


def _options(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]


def _row(parameter: dict[str, Any]) -> tuple[str, ...]:
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


def _members(schema: dict[str, Any], document: dict[str, Any]) -> list[tuple[str, ...]]:
    """The members of an answer, and those of the objects in it by their path."""
    rows = []
    name = schema.get("$ref", "").rpartition("/")[2]
    whole = document["components"]["schemas"].get(name, schema)
    for member, value in whole.get("properties", {}).items():
        (inner, *_), brackets = _options(value), ""
        while "items" in inner:
            inner, brackets = inner["items"], brackets + "[]"
        objects = [one for one in _options(inner) if "$ref" in one]
        kinds = [one["$ref"].rpartition("/")[2] for one in objects] or [inner.get("type", "object")]
        kind = f"({' or '.join(kinds)})" if len(kinds) > 1 else kinds[0]
        rows.append((f"`{member}`", kind + brackets, value.get("description", "")))
        for one in objects:
            found = _members(one, document) if "ProblemDetails" not in one["$ref"] else []
            rows += [(f"`{member}{brackets}.{name[1:]}", *rest) for name, *rest in found]
    return rows


def describe_commands() -> Iterator[str]:
    """Markdown of every command of `capsnet` and of `python -m training`."""
    from typer.main import get_command  # noqa: PLC0415  torch is slow to import

    from training.__main__ import app  # noqa: PLC0415

    yield from _commands(get_command(capsnet_app), "capsnet")
    yield from _commands(get_command(app), "python -m training")


def _commands(command: Any, name: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        for child in command.commands.values():
            yield from _commands(child, f"{name} {child.name}")
        return
    yield from (f"## `{name}`", "", (command.help or "").split("\f")[0], "")
    rows = []
    for one in command.params:
        given = ", ".join(f"`{option}`" for option in one.opts)
        if one.param_type_name == "argument":
            given = f"`{str(one.name).upper()}`"
        plain = one.default is None or one.default is False or callable(one.default)
        default = "" if plain else f"`{one.default}`"
        rows.append((given, default, getattr(one, "help", None) or ""))
    yield from table(("option", "default", ""), rows)
