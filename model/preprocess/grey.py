"""Pictures of any mode to one channel of light."""

from __future__ import annotations

import numpy as np
from PIL import Image

from model.preprocess.pixels import Floats, to_floats


def to_grey(picture: Image.Image) -> Floats:
    """Any mode to (H, W) luminance in [0, 1]; transparency is laid on a ground that suits it."""
    if picture.mode.startswith("I"):
        return (np.asarray(picture, np.float32) / 65535).clip(0, 1)
    if picture.has_transparency_data:
        return _flatten(picture.convert("RGBA"))
    return to_floats(picture if picture.mode == "L" else picture.convert("L"))


def _flatten(picture: Image.Image) -> Floats:
    """RGBA to (H, W): strokes are laid on what contrasts with them, paper on more of the same.

    Where most of the picture is opaque it is paper, cut out or with a margin.
    """
    grey = to_floats(picture.convert("RGB").convert("L"))
    alpha = to_floats(picture.getchannel("A"))
    covered = float(alpha.sum())
    if covered > alpha.size / 2:
        ground = float(np.median(grey[alpha > 0.5]))
    else:
        ground = float(covered > 0 and float((grey * alpha).sum()) / covered < 0.5)
    return np.asarray(grey * alpha + (1 - alpha) * ground, np.float32)
