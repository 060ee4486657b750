"""MkDocs' hooks: pages that lie outside of docs, such as the README and the bundles' cards."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

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
COPIED = (
    "LICENSE",
    "CITATION.cff",
    "examples/look-inside.ipynb",
    "examples/tritonclient_grpc.py",
    "examples/tritonclient_http.py",
)
"""Files outside docs that pages link to."""
_LINK = re.compile(r"\]\(([\w./-]+)(#[\w-]+)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs, the cards' pictures and what pages link to."""
    for name in COPIED:
        files.append(File.generated(config, Path(name).name, abs_src_path=str(ROOT / name)))
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text()))
        if target.startswith("cards/"):
            for picture in sorted((ROOT / source).parent.glob("*.png")):
                uri = f"{PurePosixPath(target).parent}/{picture.name}"
                files.append(File.generated(config, uri, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links at the pages of the site, from wherever they lie."""
    here = page.file.src_uri
    source = next((ROOT / file for file, uri in PAGES.items() if uri == here), ROOT / "docs" / here)

    def link(match: re.Match[str]) -> str:
        file = Path(os.path.normpath(source.parent / match[1])).relative_to(ROOT)
        inside = file.relative_to("docs").as_posix() if file.parts[:1] == ("docs",) else None
        uri = file.name if file.as_posix() in COPIED else PAGES.get(file.as_posix(), inside)
        if uri is None or here == uri:
            return match[0]
        return f"]({os.path.relpath(uri, PurePosixPath(here).parent)}{match[2] or ''})"

    return _LINK.sub(link, markdown)
