"""How much routing still changes, iteration by iteration (paper, figure A.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from model.capsnet.routing import trace
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
        parts.append(_changes(torch.from_numpy(routing.votes), torch.from_numpy(bias)))
        sizes.append(len(routing.votes))
    return Changes(*np.average(parts, axis=0, weights=sizes))


def _changes(votes: Tensor, bias: Tensor) -> Changes:
    """Of votes (N, K, I, D): what an iteration changes, the next one begins with."""
    steps = trace(votes, iterations=ITERATIONS + 1, bias=bias)
    return Changes(
        *(
            trail.diff(dim=1).abs().mean(dim=(0, 2, 3)).numpy()
            for trail in (steps.logits, steps.couplings)
        )
    )


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
