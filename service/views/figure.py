"""Figures by matplotlib, as PNG files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from model.canvas import png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 100
_one_at_a_time = threading.Lock()
"""Matplotlib is not safe for threads."""


def draw(fill: Callable[[Figure], None], *, width_px: float, height_px: float) -> bytes:
    """What `fill` draws into a figure of this size."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  takes half a second
    from matplotlib.figure import Figure  # noqa: PLC0415

    with _one_at_a_time:
        canvas = FigureCanvasAgg(Figure((width_px / _DPI, height_px / _DPI), dpi=_DPI))
        fill(canvas.figure)
        canvas.draw()  # type: ignore[no-untyped-call]
        pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
        return png(Image.fromarray(pixels[..., :3]))
