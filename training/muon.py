"""Muon: momentum whose steps are orthogonal matrices (Jordan et al., "Muon", 2024)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from model.capsnet.routing import Votes
from training.device import has_bfloat16

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The coefficients a, b, c of x <- a x + b x^3 + c x^5: singular values end near 0.7 to 1.2, fast.
"""
_ITERATIONS = 5
_MOMENTUM = 0.95
"""Nesterov's."""
_LEAST_BFLOAT16 = 64
"""The number of columns from which products are faster in bfloat16."""
FREE_RATE = 0.04
"""The largest rate of a convolution that changes its norm, where others keep theirs: larger ones
let the decoder's kernels, which no batch normalisation follows, grow without bound."""


class Muon(torch.optim.Optimizer):
    """Takes the step nearest to the momentum whose singular values are all about 1.

    torch's own Muon takes 2-D parameters alone; these are convolutions, each one matrix
    (out, in * kernel^2), and transformation matrices, one matrix (I * in_dim, D) for each class.

    Args:
        matrices: the classes of each weight: K for transformation matrices, whose last axis is
            K * D; 0 marks a convolution.
        normalised: weights that are scaled back to their first norm after each step. Their
            direction alone is learnt, so that the rate means the same throughout a training.
        free_factor: the factor of the rate of convolutions that are not normalised.
    """

    def __init__(
        self,
        matrices: Mapping[Tensor, int],
        *,
        normalised: Collection[Tensor] = (),
        free_factor: float = 1.0,
    ) -> None:
        fixed = {id(weight) for weight in normalised}
        kinds = {weight: (classes, id(weight) in fixed) for weight, classes in matrices.items()}
        groups = [
            {
                "params": [weight for weight, own in kinds.items() if own == kind],
                "classes": kind[0],
                "normalised": kind[1],
                "factor": 1.0 if kind[0] or kind[1] else free_factor,
            }
            for kind in sorted(set(kinds.values()))
        ]
        super().__init__(groups, {"lr": 0.0, "decay": 0.0})

    def set_rates(self, *, convolutions: float, votes: float, decay: float = 0.0) -> None:
        """Set the learning rates of the next step, and the share that each weight loses in it."""
        for group in self.param_groups:
            set_rate(group, "lr", votes if group["classes"] else convolutions * group["factor"])
            set_rate(group, "decay", decay)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Move every weight that has a gradient; a group's step is scaled by its `lr`."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight.grad)
                    if group["normalised"]:
                        state["norm"] = weight.norm()
                state["momentum"].lerp_(weight.grad, 1 - _MOMENTUM)
                ahead = weight.grad.lerp(state["momentum"], _MOMENTUM)
                weight.mul_(1 - group["decay"])
                weight.sub_(_step(ahead, group["classes"]) * group["lr"])
                if group["normalised"]:
                    weight.mul_(state["norm"] / weight.norm())


def set_rate(group: dict[str, Any], name: str, value: float) -> None:
    """Set a rate of an optimiser's group; on a GPU in place, where a captured step reads it."""
    device = group["params"][0].device if group["params"] else torch.device("cpu")
    if device.type != "cuda":
        group[name] = value
        return
    rate = group[name]
    if not isinstance(rate, Tensor) or rate.device != device:
        group[name] = rate = torch.zeros((), device=device)
    rate.fill_(value)


def matrices_of(network: nn.Module, *, convolutions: bool, votes: bool) -> dict[Tensor, int]:
    """The weights that Muon is to train, as it takes them.

    Args:
        convolutions: whether those with several input channels are among them.
        votes: whether transformation matrices are.
    """
    matrices: dict[Tensor, int] = {}
    for module in network.modules():
        if convolutions and isinstance(module, nn.Conv2d) and module.in_channels > 1:
            matrices[module.weight] = 0
        elif votes and isinstance(module, Votes):
            matrices[module.weight] = module.classes
    return {weight: own for weight, own in matrices.items() if weight.requires_grad}


def orthogonalise(matrices: Tensor) -> Tensor:
    """Return matrices (..., A, B) of the same singular vectors, with singular values of about 1."""
    wide = matrices if matrices.shape[-2] <= matrices.shape[-1] else matrices.mT
    fast = wide.shape[-1] >= _LEAST_BFLOAT16 and has_bfloat16(matrices.device)
    x = wide.to(torch.bfloat16 if fast else torch.float32)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    orthogonal: Tensor = (x if wide is matrices else x.mT).to(matrices.dtype)
    return orthogonal


def _step(ahead: Tensor, classes: int) -> Tensor:
    """The step of a weight.

    Orthogonal matrices are multiplied by sqrt(max(1, out / in)) for convolutions, and by the root
    of the longer side for votes, whose elements then have a mean square of about 1, as Adam's.
    """
    if not classes:
        rows = ahead.flatten(1)  # (out, in * kernel^2)
        step: Tensor = orthogonalise(rows).view_as(ahead)
        return step * float(max(1.0, len(rows) / rows.shape[1]) ** 0.5)
    inputs = ahead.numel() // ahead.shape[-1]
    by_class = ahead.reshape(inputs, classes, -1).transpose(0, 1)  # (K, I * in_dim, D)
    steps: Tensor = orthogonalise(by_class) * float(max(by_class.shape[1:]) ** 0.5)
    return steps.transpose(0, 1).reshape(ahead.shape)
