"""Measure the agreement in a routing trace: of which capsules, how much, and where.

Notation (Sabour et al., 2017, section 2 and procedure 1): input capsule i votes u_ki for class
capsule k, its vote has the weight w_ki, and v_k is the pose that the votes add up to. Arrays have
the axes R (iterations), K (classes), I (input capsules), D (pose): weights (R, K, I), votes
(K, I, D) and poses (R, K, D). The weight is the coupling c_ki; for EM routing it is the assignment
r_ki times the activation a_i: what capsule i weighs in the mean v_k. Self-attention adds a learned
B to the softmax, so its couplings may be negative: such a vote is subtracted from the class's sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.bundle import Layer
from model.outputs import ClassTrace
from model.preprocess import Floats

_ROUNDING = 1e-3
"""The tolerance of the sum of a capsule's couplings."""
_TINY = 1e-12
"""A constant that is added to divisors."""


class Agreement(NamedTuple):
    """The agreement of capsules on one image, by iteration."""

    weights: Floats
    """The weights of the votes, (R, K, I)."""
    support: Floats
    """The support, (R, K, I): see `measure_support`."""
    agreement: Floats
    """The agreement (R, K), from -1 to 1: the support, divided by what it would be if all weighted
    votes lay along the pose: a_k = sum_i w_ki <u_ki, v_k> / (|v_k| sum_i |w_ki| |u_ki|). Without a
    bias this is the mean resultant length of the weighted votes (Mardia and Jupp, "Directional
    Statistics", section 2.3)."""
    entropy: Floats | None
    """The entropy (R,); None where couplings are no distribution over the classes."""


def trace_agreement(trace: ClassTrace[Floats], *, activated: bool) -> Agreement:
    """Measure the agreement on one image.

    Args:
        trace: of the image; its arrays have no leading axis.
        activated: whether a vote counts by the activation of its capsule, as in matrix capsules. In
            other networks, the length of a vote shows how present its capsule is.
    """
    weights = np.asarray(trace.couplings * (trace.input_presence if activated else 1))
    support = measure_support(weights, trace.votes, trace.poses)
    most = (np.abs(weights) * np.linalg.norm(trace.votes, axis=-1)).sum(axis=-1)
    shares = are_shares(trace.couplings)
    entropy = measure_entropy(trace.logits, trace.input_presence) if shares else None
    return Agreement(weights, support, support.sum(axis=-1) / (most + _TINY), entropy)


def are_shares(couplings: Floats) -> bool:
    """Return whether couplings (R, K, I) divide each input capsule among the classes.

    Shares are not negative, and the shares of a capsule sum to one, as those of a softmax do.
    Self-attention adds B to its softmax: its couplings are weights, which have no entropy.
    """
    sums = couplings.sum(axis=1)
    return bool((couplings >= 0).all() and np.allclose(sums, 1, atol=_ROUNDING))


def measure_support(weights: Floats, votes: Floats, poses: Floats) -> Floats:
    """Compute each input capsule's part of a pose's length: w_ki <u_ki, v_k> / |v_k|, (R, K, I).

    The sum over i is the length before the squash, less what a bias adds (EM: the length of the
    pose, times the weight of all capsules). A part is negative if a vote of positive weight points
    away from the pose, or a vote of negative weight points along the pose.
    """
    directions = poses / (np.linalg.norm(poses, axis=-1, keepdims=True) + _TINY)
    return np.asarray(weights * np.einsum("kid,rkd->rki", votes, directions))


def measure_entropy(logits: Floats, input_presence: Floats) -> Floats:
    """Compute the mean entropy of the input capsules' couplings, from 0 to 1, (R,).

    h = -sum_k s_ki log s_ki / log K with s the softmax over classes of logits (R, K, I), averaged
    over i with their presence (I,) as weights. 0 means that each capsule serves one class, 1 that
    it serves all alike.
    """
    logs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    undecided = -(np.exp(logs) * logs).sum(axis=1) / np.log(logits.shape[1])  # (R, I)
    return np.asarray(undecided @ input_presence / (input_presence.sum() + _TINY))


def by_cell(values: Floats, layer: Layer) -> Floats:
    """Arrange values of input capsules (..., I) by type and place: (..., T, rows, columns)."""
    return values.reshape(*values.shape[:-1], layer.types, layer.rows, layer.columns)


class Projection(NamedTuple):
    """The votes for one class, projected to the plane in which they differ most."""

    points: Floats
    """The points (I, 2). The weighted mean of the votes lies at the origin."""
    explained: Floats
    """The share of the weighted variance along each axis, (2,)."""


def project(votes: Floats, weights: Floats) -> Projection:
    """Compute the principal components of votes (I, D), each weighted by its coupling's size (I,).

    The axes are the two leading eigenvectors of C = sum_i w_i (u_i - m)(u_i - m)' / sum_i w_i with
    m = sum_i w_i u_i / sum_i w_i and w = |weights|. An eigenvector's sign is free: the component of
    largest size is made positive, so that equal votes are always drawn alike.
    """
    sizes = np.abs(weights).astype(np.float64)
    shares = sizes / (sizes.sum() + _TINY)
    centred = votes - shares @ votes
    variances, axes = np.linalg.eigh((centred * shares[:, None]).T @ centred)
    plane = axes[:, [-1, -2]]  # eigenvalues ascend
    largest = np.abs(plane).argmax(axis=0)
    plane = plane * np.where(plane[largest, [0, 1]] < 0, -1, 1)
    explained = variances[[-1, -2]] / (variances.sum() + _TINY)
    return Projection(centred @ plane, np.maximum(explained, 0))
