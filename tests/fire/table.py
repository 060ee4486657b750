"""What a part of `make fire` found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Table:
    """Figures, and which promises they break."""

    part: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Promises that were broken."""
    seconds: float = 0.0

    def add(self, *cells: object, faults: list[str] | None = None) -> None:
        """A further row; the first cell names it."""
        self.rows.append([str(cell) for cell in cells])
        self.faults += [f"{cells[0]}: {fault}" for fault in faults or []]

    def markdown(self) -> str:
        """The table as the page has it."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return dict(vars(self))
