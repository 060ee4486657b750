"""How much routing still changes, iteration by iteration (paper, figure A.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from model.preprocess import Floats
from model.runtime import Runtime

ITERATIONS = 9
_TINY = 1e-12
_BATCH = 8


class Changes(NamedTuple):
    """Mean absolute changes by each iteration, (R,) each, over images, classes and capsules."""

    logits: Floats
    """Of b: |u_ik . v_k|."""
    couplings: Floats
    """Of c, from the couplings before the iteration to those after it."""


def routing_changes(runtime: Runtime, images: Floats) -> Changes:
    """Route images (N, 1, H, W) for ITERATIONS, more than the network was trained with."""
    parts, sizes = [], []
    for start in range(0, len(images), _BATCH):
        routing = runtime.route(images[start : start + _BATCH])
        bias = recover_bias(routing.votes[:1], routing.poses[:1, 0])
        parts.append(route_on(routing.votes, iterations=ITERATIONS, bias=bias))
        sizes.append(len(routing.votes))
    return Changes(*np.average(parts, axis=0, weights=sizes))


def route_on(votes: Floats, *, iterations: int, bias: Floats | float = 0.0) -> Changes:
    """Route votes (N, K, I, D) (paper, procedure 1) and note what each iteration changed.

    Args:
        votes: of one batch.
        iterations: at least one.
        bias: (K, D), added before the squash.
    """
    logits = np.zeros(votes.shape[:3], np.float32)
    couplings = _softmax(logits)
    logit_changes, coupling_changes = [], []
    for _ in range(iterations):
        poses = _squash(np.einsum("nki,nkid->nkd", couplings, votes) + bias)
        step = np.einsum("nkid,nkd->nki", votes, poses)
        logits = logits + step
        moved = _softmax(logits)
        logit_changes.append(np.abs(step).mean())
        coupling_changes.append(np.abs(moved - couplings).mean())
        couplings = moved
    return Changes(np.array(logit_changes), np.array(coupling_changes))


def recover_bias(votes: Floats, poses: Floats) -> Floats:
    """The bias before the squash, (K, D), from the first iteration of one image.

    Squash keeps directions and makes |v| = |s|^2 / (1 + |s|^2), so |s| = sqrt(|v| / (1 - |v|)).
    With equal couplings s = sum_i u_ik / K + bias.

    Args:
        votes: (1, K, I, D).
        poses: (1, K, D), after the first iteration.
    """
    lengths = np.linalg.norm(poses, axis=-1, keepdims=True)
    sums = poses / (lengths + _TINY) * np.sqrt(lengths / (1 - lengths))
    return np.asarray((sums - votes.sum(axis=2) / votes.shape[1])[0])


def _softmax(logits: Floats) -> Floats:
    """Over the classes: (N, K, I)."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _squash(sums: Floats) -> Floats:
    """S |s| / (1 + |s|^2) of (N, K, D) (paper, equation 1)."""
    lengths = np.linalg.norm(sums, axis=-1, keepdims=True)
    return np.asarray(sums * lengths / (1 + np.square(lengths)))
