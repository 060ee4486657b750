"""The optimisers: AdamW, and Muon, whose steps are orthogonal matrices (Jordan et al., 2024)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from model.capsnet.routing import Votes
from training.device import has_bfloat16
from training.recipes import Recipe

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
        groups: weights of one kind each. `classes` is K for transformation matrices, whose last
            axis is K * D, and 0 for convolutions. Weights that are `normalised` are scaled back to
            their first norm after each step: their direction alone is learnt, so that the rate
            means the same throughout a training.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        kind = {"classes": 0, "normalised": False, "factor": 1.0, "weight_decay": 0.0}
        super().__init__(groups, {"lr": 0.0, **kind})

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
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.sub_(_step(ahead, group["classes"]) * group["lr"])
                if group["normalised"]:
                    weight.mul_(state["norm"] / weight.norm())


def make_optimisers(
    network: nn.Module, recipe: Recipe, *, on_gpu: bool
) -> list[torch.optim.Optimizer]:
    """AdamW, and Muon for the weights that the recipe leaves to it.

    `set_rates` sets their rates.
    """
    groups = _groups_of_muon(network, recipe)
    by_muon = {weight for group in groups for weight in group["params"]}
    by_adam = [
        weight for weight in network.parameters() if weight.requires_grad and weight not in by_muon
    ]
    kernels = [weight for weight in by_adam if weight.ndim > 1]
    biases_and_norms = [weight for weight in by_adam if weight.ndim <= 1]
    decaying: dict[str, Any] = {"params": kernels, "weight_decay": recipe.weight_decay}
    adam = torch.optim.AdamW(
        [decaying, {"params": biases_and_norms}],
        lr=recipe.learning_rate,
        eps=1e-8,
        weight_decay=0.0,
        fused=True,
        capturable=on_gpu,
    )
    return [adam, Muon(groups)] if groups else [adam]


def _groups_of_muon(network: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """The weights that Muon trains. The `factor` of a group is that of Adam's rate.

    Kernels of the stem keep their norm if the recipe says so. The decoder's do not, because no
    batch normalisation follows them.
    """
    stem = {*network.get_submodule("stem").parameters()} if recipe.muon_normalised else set()
    groups: dict[tuple[int, bool], dict[str, Any]] = {}
    for module in network.modules():
        classes, normalised = 0, False
        if isinstance(module, nn.Conv2d) and module.in_channels > 1:
            normalised = module.weight in stem
            grows = recipe.muon_normalised and not normalised
            rate = min(recipe.muon_rate, FREE_RATE) if grows else recipe.muon_rate
            factor = rate / recipe.learning_rate
        elif isinstance(module, Votes):
            classes, factor = module.classes, recipe.muon_votes
        else:
            continue
        if factor and module.weight.requires_grad:
            kind = {"classes": classes, "normalised": normalised, "factor": factor}
            decay = recipe.weight_decay / factor  # a step subtracts this times Adam's rate
            empty = {"params": [], "weight_decay": decay, **kind}
            groups.setdefault((classes, normalised), empty)["params"].append(module.weight)
    return list(groups.values())


def set_rates(optimisers: Iterable[torch.optim.Optimizer], rate: float) -> None:
    """Set Adam's rate, and those of Muon that follow it.

    On a GPU, a rate is set in place, where a captured step reads it.
    """
    for group in (group for optimiser in optimisers for group in optimiser.param_groups):
        value = rate * group.get("factor", 1.0)
        device = group["params"][0].device if group["params"] else torch.device("cpu")
        if device.type != "cuda":
            group["lr"] = value
            continue
        if not isinstance(group["lr"], Tensor) or group["lr"].device != device:
            group["lr"] = torch.zeros((), device=device)
        group["lr"].fill_(value)


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
