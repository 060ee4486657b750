"""How much routing still changes, iteration by iteration (Sabour 2017, figure A.1)."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from model.capsnet import Network, build
from model.preprocess import Floats

ITERATIONS = 9
_FIELDS = ("routing_iterations", "rounds")
"""What configurations call their number of iterations."""
_BATCH = 8


def measure_changes(network: Network, images: Floats) -> dict[str, Floats]:
    """Mean absolute changes of logits and couplings of the class capsules, by iteration.

    Args:
        network: of a family that iterates; it is routed for more iterations than it was trained.
        images: (N, C, H, W).

    Returns:
        (ITERATIONS,) each, the mean over images, classes and capsules: by how much what an
        iteration computes differs from what it began with.

    Raises:
        ValueError: its routing has no iterations.
    """
    longer = with_iterations(network, ITERATIONS + 1)
    parts, sizes = [], []
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            trace = longer.trace(torch.from_numpy(images[start : start + _BATCH])).classes
            steps = torch.stack((trace.logits, trace.couplings))  # (2, N, R, K, I)
            parts.append(steps.diff(dim=2).abs().mean(dim=(1, 3, 4)).numpy())
            sizes.append(trace.logits.shape[0])
    logits, couplings = np.average(parts, axis=0, weights=sizes)
    return {"logit": logits, "coupling": couplings}


def with_iterations(network: Network, iterations: int) -> Network:
    """A network of the same weights that routes for so many iterations, in evaluation mode.

    Raises:
        ValueError: its routing has no iterations.
    """
    names = [field.name for field in fields(network.config) if field.name in _FIELDS]
    if not names:
        raise ValueError(f"{type(network).__name__} does not iterate")
    changes: dict[str, Any] = {names[0]: iterations}
    longer = build(replace(network.config, **changes))
    longer.load_state_dict(network.state_dict())
    return longer.eval()
