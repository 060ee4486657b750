"""What routing by agreement did, as figures: who agreed, how much, and where on the picture.

Notation (paper, section 2 and procedure 1): primary capsule i votes u_ik for class capsule k,
divides itself among the classes by couplings c_ik, and v_k is the pose that the votes add up to.
Arrays have the axes R (iterations), K (classes), I (primary capsules), D (pose).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.runtime import Floats

_TINY = 1e-12
"""Added to what is divided by."""


def support(couplings: Floats, votes: Floats, poses: Floats) -> Floats:
    """How much each primary capsule adds to a class capsule, along its pose: c_ik u_ik . v_k/|v_k|.

    Over all i this sums to |s_k|, the length before the squash (less what a bias adds). It is
    negative where a vote points away from the pose.

    Args:
        couplings: (R, K, I).
        votes: (K, I, D).
        poses: (R, K, D).

    Returns:
        (R, K, I).
    """
    directions = poses / (np.linalg.norm(poses, axis=-1, keepdims=True) + _TINY)
    return np.asarray(couplings * np.einsum("kid,rkd->rki", votes, directions))


def agreement(couplings: Floats, votes: Floats, poses: Floats) -> Floats:
    """How far the votes for a class point the same way, from -1 to 1.

    The support as a share of what it would be if every vote lay along the pose:
    a_k = sum_i c_ik u_ik . v_k/|v_k| / sum_i c_ik |u_ik|. Without a bias this is the mean resultant
    length of the weighted votes (Mardia and Jupp, "Directional Statistics", section 2.3).

    Args:
        couplings: (R, K, I).
        votes: (K, I, D).
        poses: (R, K, D).

    Returns:
        (R, K).
    """
    most = (couplings * np.linalg.norm(votes, axis=-1)).sum(axis=-1)
    return np.asarray(support(couplings, votes, poses).sum(axis=-1) / (most + _TINY))


def entropy(couplings: Floats, primary_lengths: Floats) -> Floats:
    """How undecided the primary capsules are, from 0 (each serves one class) to 1 (all alike).

    h = -sum_k c_ik log c_ik / log K, averaged over i with weights |u_i|: a capsule that sees
    nothing has no say.

    Args:
        couplings: (R, K, I), summing to one over K.
        primary_lengths: (I,).

    Returns:
        (R,).
    """
    surprise = -np.log(np.maximum(couplings, _TINY))
    undecided = (couplings * surprise).sum(axis=1) / np.log(couplings.shape[1])  # (R, I)
    return np.asarray(undecided @ primary_lengths / (primary_lengths.sum() + _TINY))


def on_grid(values: Floats, grid: int) -> Floats:
    """Sum over capsule types: (..., I) to (..., grid, grid), rows from the top."""
    return np.asarray(values.reshape(*values.shape[:-1], -1, grid, grid).sum(axis=-3))


def by_type(values: Floats, grid: int) -> Floats:
    """Sum over the grid: (..., I) to (..., T)."""
    return np.asarray(values.reshape(*values.shape[:-1], -1, grid * grid).sum(axis=-1))


class Projection(NamedTuple):
    """Votes for one class, seen in the plane in which they differ most."""

    points: Floats
    """(I, 2); the weighted mean of the votes lies at the origin."""
    explained: Floats
    """(2,): share of the weighted variance along each axis."""


def project(votes: Floats, weights: Floats) -> Projection:
    """Principal components of votes weighted by their couplings.

    The axes are the two leading eigenvectors of C = sum_i w_i (u_i - m)(u_i - m)' / sum_i w_i with
    m = sum_i w_i u_i / sum_i w_i. An eigenvector's sign is free: the component of largest size is
    made positive, so that equal votes are always drawn alike.

    Args:
        votes: (I, D), D at least two.
        weights: (I,), none negative.
    """
    shares = (weights / (weights.sum() + _TINY)).astype(np.float64)
    centred = votes - shares @ votes
    variances, axes = np.linalg.eigh((centred * shares[:, None]).T @ centred)
    plane = axes[:, [-1, -2]]  # eigenvalues ascend
    largest = np.abs(plane).argmax(axis=0)
    plane = plane * np.where(plane[largest, [0, 1]] < 0, -1, 1)
    explained = variances[[-1, -2]] / (variances.sum() + _TINY)
    return Projection(centred @ plane, np.maximum(explained, 0))
