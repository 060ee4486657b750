"""Write the figures of `make fire` to the page: `python -m tools.reliability runs/fire.json`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from tests.fire.table import Table

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
_FIGURES = re.compile(r"(<!-- (?P<part>.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def write(page: Path, tables: list[Table]) -> None:
    """Put each table where the page names its part; the others stay."""
    known = {table.part: table for table in tables}

    def replace(found: re.Match[str]) -> str:
        table = known.get(found["part"])
        return f"{found[1]}\n{table.markdown()}\n\n{found[3]}" if table else found[0]

    page.write_text(_FIGURES.sub(replace, page.read_text()))


if __name__ == "__main__":
    write(PAGE, [Table(**table) for table in json.loads(Path(sys.argv[1]).read_text())])
