"""Compare each class's reconstruction of an image: why is it not another class?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from model.preprocess import Floats


def missed_share(images: Floats, decoded: Floats) -> Floats:
    """Compute the share of images x that reconstructions y miss: |x - y|^2 / (|x|^2 + 1), (N,).

    Args:
        images: (N, C, H, W) in [0, 1], or (1, C, H, W), the same for all.
        decoded: (N, C, H, W).
    """
    missed = np.square(images - decoded).sum(axis=(1, 2, 3))
    return np.asarray(missed / (np.square(images).sum(axis=(1, 2, 3)) + 1))


def rank_rivals(presence: Floats, errors: Floats) -> NDArray[np.int64]:
    """Rank the labels of all classes by presence, and equal ones by their reconstruction.

    Args:
        presence: (K,).
        errors: (K,).
    """
    return np.lexsort((errors, -presence))
