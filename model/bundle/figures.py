"""The figures of a bundle: PNG files next to its card, which the card shows.

The manifest says nothing of them. `wrong.png` is not among them: it shows up to a hundred pictures,
which may be private.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from model.bundle.bounded import read_png

EXPLAINED = "explained.png"
FIGURES = {
    "curves.png": "training curves",
    "confidence.png": "reliability, coverage and sizes of sets",
    EXPLAINED: "images, their reconstructions and those of PCA",
    "health.png": "couplings and starved capsules",
    "sweep.png": "poses, moved step by step",
}
"""What each figure shows, by file name, in the order of the card."""
MAX_FIGURE_BYTES = 4_000_000
"""A figure may have this many bytes. A larger one is left out."""


@dataclass(frozen=True)
class Figure:
    """A figure of a bundle."""

    file: str
    """The file's name in the bundle, `explained.png`."""
    shows: str
    """What it shows, in words."""
    png: bytes = field(repr=False)


def read_figures(folder: Path) -> tuple[Figure, ...]:
    """The figures in a bundle's folder, in the order of `FIGURES`; any may be missing.

    Raises:
        ValueError: one cannot be read, or is no PNG.
    """
    return tuple(
        Figure(file, shows, read_png(folder / file, MAX_FIGURE_BYTES))
        for file, shows in FIGURES.items()
        if (folder / file).is_file() and (folder / file).stat().st_size <= MAX_FIGURE_BYTES
    )
