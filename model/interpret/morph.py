"""Interpolate between two poses of one class.

The direction of a capsule says how its entity looks, its length whether it is there. So the
direction goes along the great circle from one to the other (slerp; Shoemake 1985, "Animating
Rotation with Quaternion Curves"), at constant speed, and the length changes linearly.
"""

from __future__ import annotations

import numpy as np

from model.preprocess import Floats

MAX_STEPS = 64
_PARALLEL = 1e-6
"""The sine of an angle below which two directions are parallel or opposite."""


def interpolate(first: Floats, second: Floats, steps: int) -> Floats:
    """Interpolate poses (steps, D) from one (D,) to the other, both included.

    Between opposite directions all great circles are as short: one of them is taken, always the
    same. A pose of zeros has no direction: it takes the other one's.
    """
    start, end = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linspace(np.linalg.norm(start), np.linalg.norm(end), steps)
    if not (start.any() and end.any()):
        start = end = start if start.any() else end
    along = start / (np.linalg.norm(start) or 1)
    target = end / (np.linalg.norm(end) or 1)
    beside = target - (along @ target) * along
    sine = np.linalg.norm(beside)
    angle = np.arctan2(sine, along @ target)
    if sine < _PARALLEL:
        beside = np.eye(len(along))[np.abs(along).argmin()]
        beside = beside - (along @ beside) * along
    beside /= np.linalg.norm(beside) or 1
    angles = np.linspace(0, angle, steps)[:, None]
    directions = np.cos(angles) * along + np.sin(angles) * beside
    return np.asarray(lengths[:, None] * directions, np.float32)
