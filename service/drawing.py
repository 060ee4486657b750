"""Drawings that take long: a process of their own, and figures. Nothing of HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from model.canvas import png
from service.pool.pool import Pool, Template

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 100
DRAW_CPU_S = 10.0
"""Most CPU time of a drawing."""
_IMPORTED = ("service.views", "matplotlib.figure", "matplotlib.backends.backend_agg")
MOST_WAITING = 8
"""Drawings, each a fifth of a second: more callers are told to come again."""


def open_pool(memory_bytes: int = 500_000_000) -> Pool:
    """One process that draws, started with the first drawing: with matplotlib it takes 110 MB.

    Args:
        memory_bytes: for a drawing, beyond that; the largest sweep has 21 megapixels.
    """
    template = Template(*_IMPORTED, memory_bytes=memory_bytes)
    return Pool(template, processes=1, limit=MOST_WAITING)


def draw_figure(fill: Callable[[Figure], None], *, width_px: float, height_px: float) -> bytes:
    """A figure of this size as a PNG, drawn by `fill`; only in the process that draws."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  takes half a second
    from matplotlib.figure import Figure  # noqa: PLC0415

    canvas = FigureCanvasAgg(Figure((width_px / _DPI, height_px / _DPI), dpi=_DPI))
    fill(canvas.figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return png(Image.fromarray(pixels[..., :3]))
