"""Whether strokes are lighter than their ground."""

from __future__ import annotations

from typing import Literal

import numpy as np

from model.preprocess.median import median
from model.preprocess.pixels import Floats

FoundPolarity = Literal["light-on-dark", "dark-on-light"]
Polarity = Literal["auto", "light-on-dark", "dark-on-light"]


def border_polarity(grey: Floats) -> FoundPolarity:
    """The polarity of a picture (H, W) in [0, 1] whose border is ground."""
    border = np.concatenate((grey[0], grey[-1], grey[:, 0], grey[:, -1]))
    return "light-on-dark" if median(border) <= 0.5 else "dark-on-light"
