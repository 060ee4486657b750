"""Draw figures in a process of their own, because they take long. This module knows no HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from model.canvas import png
from service.pool.pool import ForkServer, Pool

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 100
DRAW_CPU_S = 10.0
"""A drawing may take this much CPU time."""
_IMPORTED = ("service.views", "matplotlib.figure", "matplotlib.backends.backend_agg")
MOST_WAITING = 8
"""This many drawings may wait, each a fifth of a second. More are refused with `Retry-After`."""


def open_pool(memory_bytes: int = 500_000_000) -> Pool:
    """Open a pool of one process that draws.

    It starts with the first drawing: matplotlib takes 110 MB.

    Args:
        memory_bytes: for a drawing, beyond that; the largest sweep has 21 megapixels.
    """
    fork_server = ForkServer(*_IMPORTED, memory_bytes=memory_bytes)
    return Pool(fork_server, processes=1, limit=MOST_WAITING)


def draw_figure(fill: Callable[[Figure], None], *, width_px: float, height_px: float) -> bytes:
    """Draw a figure of this size with `fill`, and return it as a PNG.

    Call it in the pool's process.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  takes half a second
    from matplotlib.figure import Figure  # noqa: PLC0415

    canvas = FigureCanvasAgg(Figure((width_px / _DPI, height_px / _DPI), dpi=_DPI))
    fill(canvas.figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return png(Image.fromarray(pixels[..., :3]))
