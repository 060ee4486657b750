"""Draw figures with matplotlib, which is imported when the first is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from model.bundle.health import Health
from model.canvas import enlarge, png
from model.preprocess import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.image import AxesImage

    from model.views.answers import CapsuleAnswer

_DPI = 100
_STROKE = 0.45
"""The brightness of an image under colours."""
_IN_STRIP = 13
"""A strip has room for so many images."""
SUPPORTS, OPPOSES = "#d65400", "#0969da"


def new_figure(width_px: float, height_px: float, *, constrained: bool = True) -> Figure:
    """An empty figure of this size, whose parts matplotlib arranges if it is `constrained`."""
    from matplotlib.figure import Figure  # noqa: PLC0415  takes half a second

    size = width_px / _DPI, height_px / _DPI
    return Figure(size, _DPI, layout="constrained" if constrained else None)


def render(figure: Figure) -> bytes:
    """A figure as a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415

    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return png(Image.fromarray(pixels[..., :3]))


def space_evenly(count: int) -> list[int]:
    """Return the indices of `count` images of which a strip has room, both ends included."""
    indices = np.linspace(0, count - 1, min(count, _IN_STRIP)).round().astype(int)
    return list(map(int, np.unique(indices)))


def show_image(axes: Axes, image: Floats, title: str = "") -> None:
    """Show an image (C, H, W) in [0, 1] without ticks, with a title above it."""
    axes.imshow(enlarge(image, 1).convert("RGB"), interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, loc="left", fontsize="small")


def show_strip(
    figure: Figure | SubFigure,
    images: Sequence[Floats],
    titles: Sequence[str],
    *,
    columns: int = 0,
    heading: str = "",
) -> list[Axes]:
    """Show images (C, H, W) in [0, 1] side by side, row by row, and return their axes.

    Args:
        figure: to fill.
        images: of one size.
        titles: of the images.
        columns: in a row; by default all images.
        heading: above all of them.
    """
    columns = columns or len(images)
    rows = -(-len(images) // columns)
    if heading:
        figure.suptitle(heading, x=0.01, ha="left", fontsize=9)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, image, title in zip(panels, images, titles, strict=False):
        show_image(axes, image, title)
    for axes in panels[len(images) :]:
        axes.set_axis_off()
    return panels[: len(images)]


def name_chart(axes: Axes, title: str) -> None:
    """Give a chart a title, a grid and, where its lines have labels, a legend."""
    axes.set_title(title, loc="left", fontsize="medium")
    axes.grid(alpha=0.4)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize="small")


def show_support(
    axes: Axes,
    answer: CapsuleAnswer,
    support: Floats,
    title: str,
    *,
    most: float,
    extent_px: tuple[float, float, float, float] | None = None,
) -> AxesImage:
    """Show what supports the class of an answer, over its image, paled: orange, or blue if against.

    Args:
        axes: to fill.
        answer: has the image.
        support: (rows, columns).
        title: above the image.
        most: the support whose colour is full.
        extent_px: the area of the support in the image: left, right, bottom, top; by default all.
    """
    from matplotlib.colors import LinearSegmentedColormap  # noqa: PLC0415  takes half a second

    opacity = 0.9 if support.size > 1 else 0.4  # a single cell covers an image that is to be seen
    against, clear = [(0, (OPPOSES, opacity)), (0.5, (OPPOSES, 0))], [(0.5, (SUPPORTS, 0))]
    colours = LinearSegmentedColormap.from_list(
        "support", [*against, *clear, (1, (SUPPORTS, opacity))]
    )
    pale = _STROKE * (answer.image if answer.fit.polarity else 1 - answer.image)
    show_image(axes, 1 - pale, title)
    frame = axes.axis()
    shown = axes.imshow(support, colours, vmin=-most, vmax=most, extent=extent_px)
    axes.axis(frame)
    return shown


def draw_health(health: Health, *, title: str) -> bytes:
    """Draw the health of a network's capsules as a PNG."""
    figure = new_figure(900, 260)
    fill_health(figure, health=health, title=title)
    return render(figure)


def fill_health(figure: Figure | SubFigure, health: Health, *, title: str) -> None:
    """Fill a figure: couplings by iteration, their spread over images, and starved capsules."""
    figure.suptitle(title, fontsize="medium")
    decided, spread, capsules = figure.subplots(1, 3)
    for layer in health.couplings:
        iterations = range(1, len(layer.entropy) + 1)
        (line,) = decided.plot(iterations, layer.entropy, "o-", label=f"{layer.layer}: entropy")
        dashed = {"color": line.get_color(), "label": f"{layer.layer}: polarisation"}
        decided.plot(iterations, layer.polarisation, "s--", **dashed)
    decided.set(ylim=(-0.05, 1.05), xlabel="iteration", title="couplings")
    decided.set_xticks(range(1, max(len(layer.entropy) for layer in health.couplings) + 1))
    decided.legend(fontsize="x-small", frameon=False)
    places = range(len(health.couplings))
    within = [layer.within_class for layer in health.couplings]
    between = [layer.between_classes for layer in health.couplings]
    spread.bar([place - 0.2 for place in places], within, 0.4, label="within a class")
    spread.bar([place + 0.2 for place in places], between, 0.4, label="between classes")
    spread.set_xticks(list(places), [layer.layer for layer in health.couplings])
    spread.set(title="spread of couplings / their mean")
    spread.legend(fontsize="x-small", frameon=False)
    names = [f"{layer.layer}\n{layer.capsules:,}" for layer in health.capsules]
    bars = capsules.bar(names, [layer.starved_percent for layer in health.capsules])
    capsules.bar_label(bars, fmt="%g %%", fontsize="small", padding=2)
    capsules.set(ylim=(0, 110), title="starved capsules, %")
    for axes in (decided, spread, capsules):
        axes.title.set_fontsize("small")
        axes.tick_params(labelsize="small")
        axes.grid(alpha=0.4, axis="y")
        axes.spines[["top", "right"]].set_visible(False)
