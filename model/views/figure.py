"""Draw figures with matplotlib, which is imported when the first is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from model.canvas import enlarge, png
from model.preprocess import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

_DPI = 100
STROKE = 0.45
"""The brightness of an image under colours."""


def draw_figure(
    fill: Callable[[Figure], object], *, width_px: float, height_px: float, constrained: bool = True
) -> bytes:
    """Draw a figure of this size with `fill`, and return it as a PNG.

    Args:
        fill: fills the figure.
        width_px, height_px: its size.
        constrained: whether matplotlib arranges its parts.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  takes half a second
    from matplotlib.figure import Figure  # noqa: PLC0415

    canvas = FigureCanvasAgg(Figure((width_px / _DPI, height_px / _DPI), dpi=_DPI))
    if constrained:
        canvas.figure.set_layout_engine("constrained")
    fill(canvas.figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return png(Image.fromarray(pixels[..., :3]))


def spaced(count: int, at_most: int) -> list[int]:
    """Return up to `at_most` indices of `count` steps, evenly spaced, both ends included."""
    indices = np.linspace(0, count - 1, min(count, at_most)).round().astype(int)
    return list(map(int, np.unique(indices)))


def show_image(axes: Axes, image: Floats, title: str = "", *, below: bool = False) -> None:
    """Show an image (C, H, W) in [0, 1] without ticks, with a title above or below it."""
    axes.imshow(enlarge(image, 1).convert("RGB"), interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    if below:
        axes.set_xlabel(title)
    else:
        axes.set_title(title, loc="left", fontsize="small")


def show_strip(
    figure: Figure | SubFigure,
    images: Sequence[Floats],
    titles: Sequence[str],
    *,
    columns: int = 0,
    below: bool = False,
    heading: str = "",
) -> list[Axes]:
    """Show images (C, H, W) in [0, 1] side by side, row by row, and return their axes.

    Args:
        figure: to fill.
        images: of one size.
        titles: of the images.
        columns: in a row; by default all images.
        below: whether titles stand below the images.
        heading: above all of them.
    """
    columns = columns or len(images)
    rows = -(-len(images) // columns)
    if heading:
        figure.suptitle(heading, x=0.01, ha="left", fontsize=9)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, image, title in zip(panels, images, titles, strict=False):
        show_image(axes, image, title, below=below)
    for axes in panels[len(images) :]:
        axes.set_axis_off()
    return panels[: len(images)]


def darken(image: Floats, *, strokes: bool) -> Floats:
    """A pale ground for colours: dark strokes on white; photographs stay as they are."""
    return 1 - STROKE * (image if strokes else 1 - image)
