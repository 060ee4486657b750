"""The path of a pose through the steps of a changing image, and how straight it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from model.preprocess import Floats
from model.views.agreement import project

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Path(NamedTuple):
    """The path of a pose through S steps."""

    points: Floats
    """The points (S, 2) in the plane of the two directions along which the pose varies most."""
    explained: Floats
    """The share of the variance along each direction, (2,)."""
    straightness: float
    """The distance of the ends over the length of the path, in [0, 1]; 1 if the pose rests."""


def trace_path(poses: Floats) -> Path:
    """Project the path of poses (S, D) to its principal components, and measure its straightness.

    The straightness index (Batschelet 1981, "Circular Statistics in Biology", section 5.5).
    """
    exact = poses.astype(np.float64)
    points, explained = project(poses, np.ones(len(poses), np.float32))
    length = float(np.linalg.norm(np.diff(exact, axis=0), axis=1).sum())
    apart = float(np.linalg.norm(exact[-1] - exact[0]))
    return Path(points, explained, min(apart / length, 1.0) if length else 1.0)


def step_colours(steps: int) -> list[tuple[float, float, float, float]]:
    """Return a colour for each step, from dark blue to yellow."""
    from matplotlib import colormaps  # noqa: PLC0415  matplotlib takes half a second

    return [colormaps["viridis"](share) for share in np.linspace(0, 1, steps)]


def draw_path(axes: Axes, path: Path, lengths: Floats, colours: Sequence[Any]) -> None:
    """Draw the points and the line through them. Both axes have the same unit.

    A point is the larger, the higher the presence (S,) of the class.
    """
    x, y = path.points.T
    axes.plot(x, y, color="#b4b9c0", linewidth=1, zorder=1)
    sizes = 20 + 130 * lengths
    axes.scatter(x, y, s=sizes, c=colours, edgecolors="#1b1f24", linewidths=0.5)
    middle = (path.points.min(axis=0) + path.points.max(axis=0)) / 2
    reach = 1.2 * float(np.ptp(path.points, axis=0).max()) / 2 or 1.0
    left_right, up_down = ((centre - reach, centre + reach) for centre in middle)
    across, up = (f"{100 * share:.0f} % of the variance" for share in path.explained)
    axes.set(xlabel=across, ylabel=up, xlim=left_right, ylim=up_down, aspect="equal")
    axes.grid(alpha=0.4)
