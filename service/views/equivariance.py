"""Equivariance, drawn: the moved images, and how presence and pose follow them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from model.bundle import Manifest
from model.canvas import enlarge
from model.interpret.equivariance import Transform, Walk
from model.preprocess import Floats
from service.views.figure import draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_THUMBNAILS = 13
"""At most so many images are shown, evenly spaced."""
_UNITS: dict[Transform, str] = {
    "shift-x": "pixels to the right",
    "shift-y": "pixels down",
    "turn": "degrees counter-clockwise",
    "scale": "times the size",
}


def draw_equivariance(
    manifest: Manifest,
    walk: Walk,
    images: list[Floats],
    *,
    label: int,
    presence: Floats,
    poses: Floats,
    angles_deg: Floats,
) -> bytes:
    """Images on top, then presence and, where there are poses, angle and numbers, as a PNG.

    Args:
        manifest: of the network.
        walk: its S values are the axis.
        images: S images (C, H, W).
        label: the class that is followed.
        presence: (S, K).
        poses: (S, D), of the class.
        angles_deg: (S,), of its poses with that of the unmoved image.
    """
    name, steps = manifest.class_names[label], len(images)
    others = np.delete(presence, label, axis=1).max(axis=1)
    charts: list[tuple[str, Floats]] = [
        (manifest.presence, np.column_stack((presence[:, label], others)))
    ]
    if manifest.class_dim:
        angle = f"degrees between the pose of {name} and that of the unmoved picture"
        charts += [(angle, angles_deg), (f"the {manifest.class_dim} numbers of the pose", poses)]
    shown = np.unique(np.linspace(0, steps - 1, min(steps, _THUMBNAILS)).round().astype(int))
    heights = (100, 240 * len(charts))

    def fill(figure: Figure) -> None:
        figure.set_layout_engine("constrained")
        strip, curves = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
        places = strip.subplots(1, len(shown), squeeze=False)[0]
        for axes, step in zip(places, shown, strict=True):
            axes.imshow(enlarge(images[step], 1).convert("RGB"), interpolation="nearest")
            axes.set(xticks=[], yticks=[], xlabel=f"{walk.values[step]:.3g}")
        rows = curves.subplots(len(charts), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (title, values) in zip(rows, charts, strict=True):
            axes.plot(walk.values, values)
            axes.set_title(title, loc="left", fontsize="medium")
            axes.grid(alpha=0.4)
        rows[0].legend([name, "most present other class"], fontsize="small")
        rows[0].set_ylim(0, 1)
        rows[-1].set_xlabel(_UNITS[walk.transform])

    return draw(fill, width_px=900, height_px=sum(heights))
