"""Equivariance, drawn: the moved pictures, and how length and pose follow them."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING

import numpy as np

from model.bundle import Manifest
from model.canvas import enlarge
from model.preprocess import Floats
from service.inside.affine import Transform
from service.inside.equivariance import EquivarianceView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_THUMBNAILS = 13
"""At most so many pictures are shown, evenly spaced."""
_UNITS: dict[Transform, str] = {
    "shift-x": "pixels to the right",
    "shift-y": "pixels down",
    "turn": "degrees counter-clockwise",
    "scale": "times the size",
}
_one_at_a_time = threading.Lock()
"""Matplotlib is not safe for threads."""


def draw_equivariance(view: EquivarianceView, manifest: Manifest) -> bytes:
    """Pictures on top, then length, angle and the pose's numbers over the walk, as a PNG."""
    from matplotlib.figure import Figure  # noqa: PLC0415  takes half a second

    file = io.BytesIO()
    with _one_at_a_time:
        charts = 3 if manifest.class_dim else 1
        figure = Figure(figsize=(9, 1 + 2.4 * charts), dpi=100, layout="constrained")
        parts = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 2.4 * charts))
        strip, curves = parts[:, 0]
        _draw_strip(strip, view)
        axes = curves.subplots(charts, 1, sharex=True, squeeze=False)[:, 0]
        _draw_curves(axes, view, manifest)
        figure.savefig(file, format="png")
    return file.getvalue()


def _draw_strip(figure: SubFigure, view: EquivarianceView) -> None:
    """Some of the moved pictures side by side, each over its value."""
    steps = len(view.images)
    shown = np.unique(np.linspace(0, steps - 1, min(steps, _THUMBNAILS)).round().astype(int))
    places = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, step in zip(places, shown, strict=True):
        axes.imshow(enlarge(view.images[step], 1).convert("RGB"), interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.set_xlabel(f"{view.walk.values[step]:.3g}")


def _draw_curves(axes: list[Axes], view: EquivarianceView, manifest: Manifest) -> None:
    """Presence, and where there are poses their angle and numbers."""
    label = view.capsule.label
    name = manifest.class_names[label]
    others = np.delete(view.presence, label, axis=1).max(axis=1)
    charts: list[tuple[str, Floats, list[str]]] = [
        (
            manifest.presence,
            np.column_stack((view.presence[:, label], others)),
            [name, "most present other class"],
        ),
        (
            f"degrees between the pose of {name} and that of the unmoved picture",
            view.angles_deg,
            [],
        ),
        (f"the {manifest.class_dim} numbers of the pose", view.poses, []),
    ]
    for one, (title, values, names) in zip(axes, charts, strict=False):
        lines = one.plot(view.walk.values, values)
        one.set_title(title, loc="left", fontsize="medium")
        one.grid(alpha=0.4)
        if names:
            one.legend(lines, names, fontsize="small")
    axes[0].set_ylim(0, 1)
    axes[-1].set_xlabel(_UNITS[view.walk.transform])
