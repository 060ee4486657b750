"""Trace the path of a pose while the image turns, shifts or grows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.interpret.routing import project
from model.preprocess import Floats


class Trajectory(NamedTuple):
    """The path of a pose through S steps."""

    points: Floats
    """The points (S, 2) in the plane of the two directions along which the pose varies most."""
    explained: Floats
    """The share of the variance along each direction, (2,)."""
    straightness: float
    """The distance of the ends over the length of the path, in [0, 1]; 1 if the pose rests."""


def trace_path(poses: Floats) -> Trajectory:
    """Project the path of poses (S, D) to its principal components, and measure its straightness.

    The straightness index (Batschelet 1981, "Circular Statistics in Biology", section 5.5).
    """
    exact = poses.astype(np.float64)
    points, explained = project(poses, np.ones(len(poses), np.float32))
    path = float(np.linalg.norm(np.diff(exact, axis=0), axis=1).sum())
    apart = float(np.linalg.norm(exact[-1] - exact[0]))
    return Trajectory(points, explained, min(apart / path, 1.0) if path else 1.0)
