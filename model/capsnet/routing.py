"""Routing by agreement (paper, procedure 1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.capsnet.config import RoutingGradient
from model.capsnet.squash import squash


class RoutingTrace(NamedTuple):
    """What routing did, iteration by iteration (R of them)."""

    couplings: Tensor
    """c, (N, R, K, I): how each primary capsule divides itself among the classes."""
    logits: Tensor
    """b, (N, R, K, I): the logits that gave these couplings; zero at first."""
    poses: Tensor
    """v, (N, R, K, D): the class capsules after each iteration."""


def route(
    votes: Tensor,
    *,
    iterations: int,
    bias: Tensor | None = None,
    gradient: RoutingGradient = "all",
) -> Tensor:
    """Class capsules from the votes of the primary capsules.

    Batched matrix products over the class axis: no Einsum and no copy of the votes.

    Args:
        votes: (N, K, I, D), primary capsule i's prediction for class capsule k.
        iterations: how often couplings are computed, at least one.
        bias: (K, D), added before the squash.
        gradient: "last" stops the gradient in all iterations but the last.

    Returns:
        poses (N, K, D).
    """
    if gradient == "all" and torch.is_grad_enabled() and votes.requires_grad:
        poses: Tensor = LeanRouting.apply(votes, bias, iterations)  # type: ignore[no-untyped-call]
        return poses
    with torch.set_grad_enabled(torch.is_grad_enabled() and gradient == "all"):
        couplings = _settle(votes, bias, iterations=iterations)
    return squash(_weigh(votes, couplings, bias))


def trace(votes: Tensor, *, iterations: int, bias: Tensor | None = None) -> RoutingTrace:
    """The same routing as `route`, with every intermediate kept for people to look at.

    Args:
        votes: (N, K, I, D).
        iterations: R, at least one.
        bias: (K, D), added before the squash.
    """
    logits = votes[..., 0] * 0  # (N, K, I); zeros_like would put a Shape node into the graph
    steps = []
    for _ in range(iterations):
        couplings = logits.softmax(dim=1)
        poses = squash(_weigh(votes, couplings, bias))
        steps.append((couplings, logits, poses))
        logits = logits + _agree(votes, poses)
    couplings_steps, logits_steps, poses_steps = zip(*steps, strict=True)
    return RoutingTrace(
        couplings=torch.stack(couplings_steps, dim=1),
        logits=torch.stack(logits_steps, dim=1),
        poses=torch.stack(poses_steps, dim=1),
    )


class LeanRouting(torch.autograd.Function):
    """`route` with a backward pass that writes the gradient of the votes once.

    Votes are by far the network's largest tensor. Automatic differentiation makes a gradient of
    their size for each weighted sum and each agreement, 2R - 1 of them, and adds them up. Each is
    an outer product, so one matrix product of rank 2R - 1 gives their sum.
    """

    @staticmethod
    def forward(ctx: Any, votes: Tensor, bias: Tensor | None, iterations: int) -> Tensor:
        """(N, K, I, D) and (K, D) to (N, K, D)."""
        logits = torch.zeros_like(votes[..., 0])
        steps = []
        for step in range(iterations):
            couplings = logits.softmax(dim=1)
            sums = _weigh(votes, couplings if step else None, bias)
            poses = squash(sums)
            steps += [couplings, sums, poses]
            if step < iterations - 1:
                logits = logits + _agree(votes, poses)
        ctx.save_for_backward(votes, *steps)
        ctx.has_bias = bias is not None
        return steps[-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """The gradient (N, K, D) of the poses to that of votes and bias."""
        votes, *steps = ctx.saved_tensors
        poses_gradient = gradients[0]
        logits_gradient: Tensor | None = None
        columns, rows = [], []  # (N, K, I) and (N, K, D), in pairs whose outer products add up
        bias_gradient = torch.zeros_like(poses_gradient[0])
        for couplings, sums, poses in _backwards_in_threes(steps):
            if logits_gradient is not None:
                columns.append(logits_gradient)
                rows.append(poses)
                poses_gradient = _weigh(votes, logits_gradient, None)
            sums_gradient = _squash_backward(sums, poses_gradient)
            columns.append(couplings)
            rows.append(sums_gradient)
            bias_gradient += sums_gradient.sum(dim=0)
            received = _agree(votes, sums_gradient)
            pull = couplings * (received - (couplings * received).sum(dim=1, keepdim=True))
            logits_gradient = pull if logits_gradient is None else logits_gradient + pull
        votes_gradient = torch.matmul(torch.stack(columns, dim=-1), torch.stack(rows, dim=-2))
        return votes_gradient, bias_gradient if ctx.has_bias else None, None


def _settle(votes: Tensor, bias: Tensor | None, *, iterations: int) -> Tensor | None:
    """The couplings (N, K, I) of the last iteration; None for equal ones."""
    couplings: Tensor | None = None
    logits: Tensor | None = None
    for _ in range(iterations - 1):
        agreement = _agree(votes, squash(_weigh(votes, couplings, bias)))
        logits = agreement if logits is None else logits + agreement
        couplings = logits.softmax(dim=1)
    return couplings


def _weigh(votes: Tensor, couplings: Tensor | None, bias: Tensor | None) -> Tensor:
    """S = sum_i c_ik u_ik + bias: (N, K, I, D) and (N, K, I) to (N, K, D)."""
    if couplings is None:  # equal: a plain sum, one product less
        # In the products' order of axes onnxruntime needs no transposed copy of the votes.
        weighted = votes.movedim(2, 0).sum(dim=0) / votes.shape[1]
    else:
        weighted = torch.matmul(couplings.unsqueeze(2), votes).squeeze(2)
    return weighted if bias is None else weighted + bias


def _agree(votes: Tensor, poses: Tensor) -> Tensor:
    """u_ik . v_k: (N, K, I, D) and (N, K, D) to (N, K, I)."""
    return torch.matmul(votes, poses.unsqueeze(-1)).squeeze(-1)


def _squash_backward(sums: Tensor, gradient: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = sums.detach().requires_grad_()
        (result,) = torch.autograd.grad(squash(leaf), leaf, gradient)
    return result


def _backwards_in_threes(tensors: list[Tensor]) -> list[tuple[Tensor, ...]]:
    return [tuple(tensors[start : start + 3]) for start in range(len(tensors) - 3, -1, -3)]
