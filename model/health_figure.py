"""Draw the health of a network's capsules with matplotlib."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from model.bundle.health import Health
from model.views.figure import draw_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

SIZE_PX = (900, 260)
"""The width and height of the figure."""


def draw_health(health: Health, *, title: str) -> bytes:
    """Draw the health of a network's capsules as a PNG."""
    width_px, height_px = SIZE_PX
    fill = partial(fill_health, health=health, title=title)
    return draw_figure(fill, width_px=width_px, height_px=height_px)


def fill_health(figure: Figure | SubFigure, health: Health, *, title: str) -> None:
    """Fill a figure: couplings by iteration, their spread over images, and starved capsules."""
    figure.suptitle(title, fontsize="medium")
    decided, spread, capsules = figure.subplots(1, 3)
    for one in health.couplings:
        iterations = range(1, len(one.entropy) + 1)
        (line,) = decided.plot(iterations, one.entropy, "o-", label=f"{one.layer}: entropy")
        dashed = {"color": line.get_color(), "label": f"{one.layer}: polarisation"}
        decided.plot(iterations, one.polarisation, "s--", **dashed)
    decided.set(ylim=(-0.05, 1.05), xlabel="iteration", title="couplings")
    decided.set_xticks(range(1, max(len(one.entropy) for one in health.couplings) + 1))
    decided.legend(fontsize="x-small", frameon=False)
    places = range(len(health.couplings))
    within = [one.within_class for one in health.couplings]
    between = [one.between_classes for one in health.couplings]
    spread.bar([place - 0.2 for place in places], within, 0.4, label="within a class")
    spread.bar([place + 0.2 for place in places], between, 0.4, label="between classes")
    spread.set_xticks(list(places), [one.layer for one in health.couplings])
    spread.set(title="spread of couplings / their mean")
    spread.legend(fontsize="x-small", frameon=False)
    names = [f"{one.layer}\n{one.capsules:,}" for one in health.capsules]
    bars = capsules.bar(names, [one.starved_percent for one in health.capsules])
    capsules.bar_label(bars, fmt="%g %%", fontsize="small", padding=2)
    capsules.set(ylim=(0, 110), title="starved capsules, %")
    for axes in (decided, spread, capsules):
        axes.title.set_fontsize("small")
        axes.tick_params(labelsize="small")
        axes.grid(alpha=0.4, axis="y")
        axes.spines[["top", "right"]].set_visible(False)
