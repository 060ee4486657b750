"""Pictures of any mode to one channel of light."""

from __future__ import annotations

import numpy as np
from PIL import Image

from model.preprocess.pixels import Floats, to_floats


def to_grey(picture: Image.Image) -> Floats:
    """Any mode to (H, W) luminance in [0, 1]; transparency is laid on a contrasting ground."""
    if picture.mode.startswith("I"):
        return (np.asarray(picture, np.float32) / 65535).clip(0, 1)
    if picture.has_transparency_data:
        return _flatten(picture.convert("RGBA"))
    return to_floats(picture if picture.mode == "L" else picture.convert("L"))


def _flatten(picture: Image.Image) -> Floats:
    """RGBA to (H, W), laid on white if the strokes are dark and on black if they are light."""
    grey = to_floats(picture.convert("RGB").convert("L"))
    alpha = to_floats(picture.getchannel("A"))
    covered = float(alpha.sum())
    dark = covered > 0 and float((grey * alpha).sum()) / covered < 0.5
    return np.asarray(grey * alpha + (1 - alpha) * dark, np.float32)
