"""Fill in the templates beside this file: the model card and the report of a score.

Both print the words of others, such as names of classes and files, also of downloaded bundles.
Every value is escaped, so that no such word becomes markup.
"""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from training.data.words import printable


def render(template: str, **values: Any) -> str:
    """Fill in `card.md`, whose text is Markdown, or `report.html`."""
    markdown = template.endswith(".md")
    environment = Environment(
        loader=PackageLoader("training"),
        autoescape=select_autoescape(),
        finalize=_as_markdown if markdown else None,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"thousands": "{:,}".format, "sentence": _sentence, "code": _as_code}
    text = environment.get_template(template).render(values)
    return re.sub(r"\n{3,}", "\n\n", text) if markdown else text


def _as_markdown(value: Any) -> Any:
    """A value that is no HTML, ends no cell of a table and starts no line."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return printable(value).replace("&", "&amp;").replace("<", "&lt;").replace("|", r"\|")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _as_code(text: str) -> Markup:
    """The text of a line of code, which Markdown shows as it is."""
    return Markup(printable(text))  # noqa: S704
