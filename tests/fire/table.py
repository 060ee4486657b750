"""What a part of `make fire` found, and the page that shows it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
_FIGURES = re.compile(r"(<!-- (?P<part>.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


@dataclass
class Table:
    """Figures, and which promises they break."""

    part: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Promises that were broken."""

    def add(self, *cells: object, faults: list[str] | None = None) -> None:
        """A further row; the first cell names it."""
        self.rows.append([str(cell) for cell in cells])
        self.faults += [f"{cells[0]}: {fault}" for fault in faults or []]

    def markdown(self) -> str:
        """The table as the page has it."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write(tables: list[Table], page: Path = PAGE) -> None:
    """Put each table where the page names its part; the others stay."""
    known = {table.part: table for table in tables}

    def replace(found: re.Match[str]) -> str:
        table = known.get(found["part"])
        return f"{found[1]}\n{table.markdown()}\n\n{found[3]}" if table else found[0]

    page.write_text(_FIGURES.sub(replace, page.read_text()))
