"""EM routing (Hinton, Sabour and Frosst 2018, procedure 1), in log space and as matrix products.

Every parent capsule c is a Gaussian over votes. An iteration fits it to the votes of its children,
weighted by their assignments (M-step), then assigns each child anew among the parents that it
votes for (E-step). Votes V are kept next to their squares, so that both steps are products of
matrices: var = E[V^2] - mu^2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from model.outputs import EM_DECAY

FLOOR = 1e-2
"""The least variance of a parent. A parent with a single child would have none."""
MASS = 1e-6
"""A constant that is added to divisors."""

Share = Callable[[Tensor], Tensor]
"""A function that maps log scores (..., C, I) of children for parents to assignments in [0, 1]."""


class Parents(NamedTuple):
    """The parents after one iteration, in the order of `model.outputs.ClassTrace`."""

    assignments: Tensor
    """The assignments R (..., C, I): the share of child i that parent c was fitted to."""
    scores: Tensor
    """The log scores (..., C, I), ln a + ln p / `log_p_divisor` up to a constant; zeros in the
    first iteration."""
    activations: Tensor
    """The activations a, (..., C)."""
    poses: Tensor
    """The mean poses mu, (..., C, 16)."""


def iterate(
    votes: Tensor,
    activations: Tensor,
    *,
    beta_u: Tensor,
    beta_a: Tensor,
    inverse_temperature: float,
    share: Share,
    iterations: int,
    log_p_divisor: float = 1.0,
) -> Iterator[Parents]:
    """Route by expectation maximisation, iteration by iteration.

    The logit of a parent's activation in iteration t of T is

        ramp_t (beta_a - m (beta_u + lambda sum_h ln sigma_h)),

    where m is the mass of its children over an equal share, I / C, and
    ramp_t = (1 - 0.95^(t + 1)) / (1 - 0.95^T). In the paper's terms the inverse temperature is
    ramp_t lambda C / I, beta_a is this one times I / (lambda C), and beta_u is this one over
    16 lambda. So both learn at the rate of all other parameters.

    Args:
        votes: (..., C, I, 16), of child i for parent c.
        activations: (..., 1, I), of the children, in [0, 1].
        beta_u, beta_a: (C,) each, in logits.
        inverse_temperature: lambda of the last iteration, whatever their number.
        share: how log scores become assignments: a softmax over all parents of a child.
        iterations: T, at least one.
        log_p_divisor: what ln p is divided by: 1 in the paper; 16 takes the mean over the
            numbers of a pose.
    """
    both = torch.cat((votes, votes * votes), dim=-1)  # (..., C, I, 32)
    parents, children, dim = votes.shape[-3:]
    scores = votes[..., 0].detach() * 0  # torch.zeros_like exports a Shape
    for step in range(iterations):
        r = share(scores)  # (..., C, I)
        # M-step: the mean mu and the variance of each parent's votes, and its activation a.
        weights = r * activations
        mass = weights.sum(dim=-1, keepdim=True)  # (..., C, 1)
        moments = _times(weights.unsqueeze(-1), both, dim=-2) / (mass + MASS)
        mu, mean_square = moments.split(dim, dim=-1)  # type: ignore[no-untyped-call]  # (..., C, 16)
        variance = (mean_square - mu * mu).clamp_min(0) + FLOOR
        log_sigma = 0.5 * variance.log().sum(dim=-1)  # sum_h ln sigma_h, (..., C)
        relative_mass = mass.squeeze(-1) * (parents / children)
        ramp = (1 - EM_DECAY ** (step + 1)) / (1 - EM_DECAY**iterations)
        logit_a = ramp * (beta_a - relative_mass * (beta_u + inverse_temperature * log_sigma))
        yield Parents(r, scores, logit_a.sigmoid(), mu)
        if step == iterations - 1:
            return
        # E-step: ln p = -1/2 sum_h [ln(2 pi var) + (V - mu)^2 / var], less what parents share.
        precision = 1 / variance
        factors = torch.cat((mu * precision, -0.5 * precision), dim=-1)  # (..., C, 32)
        fit = _times(both, factors.unsqueeze(-2), dim=-1)  # (..., C, I)
        rest = log_sigma + 0.5 * (mu * mu * precision).sum(dim=-1)
        log_p = (fit - rest.unsqueeze(-1)) / log_p_divisor
        scores = log_p + functional.logsigmoid(logit_a).unsqueeze(-1)


def _times(left: Tensor, right: Tensor, *, dim: int) -> Tensor:
    """The sum over a dimension of (..., I, 1) or (..., I, 32) times (..., I, 32) or (..., 1, 32).

    A product of matrices, but in training, where its gradient would be thousands of outer products.
    """
    if torch.is_grad_enabled():
        return (left * right).sum(dim=dim)
    if dim == -2:
        return torch.matmul(left.transpose(-1, -2), right).squeeze(-2)
    return torch.matmul(left, right.transpose(-1, -2)).squeeze(-1)


class Windows:
    """Index the children in the windows of convolutional capsules, and the windows of each child.

    Args:
        rows, columns: of the grid of children.
        kernel, stride: of the windows.
    """

    def __init__(self, rows: int, columns: int, *, kernel: int, stride: int) -> None:
        grid = np.arange(rows * columns).reshape(rows, columns)
        windows = np.lib.stride_tricks.sliding_window_view(grid, (kernel, kernel))
        self.cells = windows[::stride, ::stride].reshape(-1, kernel * kernel)
        """(P, k): the cell that sits at each place of each window."""
        slots: list[list[int]] = [[] for _ in range(grid.size)]
        for slot, cell in enumerate(self.cells.ravel().tolist()):
            slots[cell].append(slot)
        most = max(len(of_cell) for of_cell in slots)
        empty = self.cells.size  # a slot of its own, which holds minus infinity
        self.slots = np.array([of_cell + [empty] * (most - len(of_cell)) for of_cell in slots])
        """(cells, M): the slots (window and place) in which each cell sits."""
