"""Draw figures with matplotlib, which is imported when the first is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from model.canvas import png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 100


def draw_figure(fill: Callable[[Figure], None], *, width_px: float, height_px: float) -> bytes:
    """Draw a figure of this size with `fill`, and return it as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  takes half a second
    from matplotlib.figure import Figure  # noqa: PLC0415

    canvas = FigureCanvasAgg(Figure((width_px / _DPI, height_px / _DPI), dpi=_DPI))
    fill(canvas.figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return png(Image.fromarray(pixels[..., :3]))


def spaced(count: int, at_most: int) -> list[int]:
    """Return up to `at_most` indices of `count` steps, evenly spaced, both ends included."""
    indices = np.linspace(0, count - 1, min(count, at_most)).round().astype(int)
    return list(map(int, np.unique(indices)))
