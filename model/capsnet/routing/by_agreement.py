"""Routing by agreement (Sabour 2017, procedure 1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from model.capsnet.network import ClassTrace
from model.capsnet.squash import length, squash, squash_backward


class Step(NamedTuple):
    """One iteration."""

    logits: Tensor | None
    """b, (N, K, I); None for zeros."""
    couplings: Tensor | None
    """c, (N, K, I); None for equal ones."""
    sums: Tensor
    """s, (N, K, D): the weighted votes, before the squash."""
    poses: Tensor
    """v, (N, K, D)."""


def iterate(votes: Tensor, bias: Tensor | None, iterations: int) -> Iterator[Step]:
    """Route by agreement, iteration by iteration.

    Args:
        votes: (N, K, I, D).
        bias: (K, D), added before the squash.
        iterations: how often couplings are computed, at least one.
    """
    logits: Tensor | None = None
    for step in range(iterations):
        couplings = None if logits is None else logits.softmax(dim=1)
        sums = weigh(votes, couplings)
        if bias is not None:
            sums = sums + bias
        poses = squash(sums)
        yield Step(logits, couplings, sums, poses)
        if step < iterations - 1:
            agreement = agree(votes, poses)
            logits = agreement if logits is None else logits + agreement


def route(votes: Tensor, *, iterations: int, bias: Tensor | None = None) -> Tensor:
    """Class capsules (N, K, D) from votes (N, K, I, D); gradients flow through all iterations."""
    if torch.is_grad_enabled() and votes.requires_grad:
        poses: Tensor = LeanRouting.apply(votes, bias, iterations)  # type: ignore[no-untyped-call]
        return poses
    *_, last = iterate(votes, bias, iterations)
    return last.poses


def trace(
    votes: Tensor, input_presence: Tensor, *, iterations: int, bias: Tensor | None = None
) -> ClassTrace:
    """The same routing as `route`, with every intermediate kept.

    Args:
        votes: (N, K, I, D).
        input_presence: (N, I), passed on.
        iterations: R, at least one.
        bias: (K, D), added before the squash.
    """
    zeros = votes[..., 0] * 0  # (N, K, I); zeros_like would put a Shape node into the graph
    steps = list(iterate(votes, bias, iterations))
    logits = [zeros if step.logits is None else step.logits for step in steps]
    poses = torch.stack([step.poses for step in steps], dim=1)
    return ClassTrace(
        couplings=torch.stack([logit.softmax(dim=1) for logit in logits], dim=1),
        logits=torch.stack(logits, dim=1),
        presence=length(poses),
        poses=poses,
        input_presence=input_presence,
        votes=votes,
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
        equal = torch.full_like(votes[..., 0], 1 / votes.shape[1], dtype=_wide(votes))
        kept: list[Tensor] = []
        for step in iterate(votes, bias, iterations):
            kept += [equal if step.couplings is None else step.couplings, step.sums, step.poses]
        ctx.save_for_backward(votes, *kept)
        ctx.has_bias = bias is not None
        return kept[-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """The gradient (N, K, D) of the poses to that of votes and bias."""
        votes, *kept = ctx.saved_tensors
        poses_gradient = gradients[0]
        logits_gradient: Tensor | None = None
        columns, rows = [], []  # (N, K, I) and (N, K, D), in pairs whose outer products add up
        bias_gradient = torch.zeros_like(poses_gradient[0])
        for start in range(len(kept) - 3, -1, -3):
            couplings, sums, poses = kept[start : start + 3]
            if logits_gradient is not None:
                columns.append(logits_gradient)
                rows.append(poses)
                poses_gradient = weigh(votes, logits_gradient)
            sums_gradient = squash_backward(sums, poses_gradient)
            columns.append(couplings)
            rows.append(sums_gradient)
            bias_gradient += sums_gradient.sum(dim=0)
            received = agree(votes, sums_gradient)
            pull = couplings * (received - (couplings * received).sum(dim=1, keepdim=True))
            logits_gradient = pull if logits_gradient is None else logits_gradient + pull
        left, right = torch.stack(columns, dim=-1), torch.stack(rows, dim=-2)
        votes_gradient = torch.matmul(left.to(votes.dtype), right.to(votes.dtype))
        return votes_gradient, bias_gradient if ctx.has_bias else None, None


def weigh(votes: Tensor, couplings: Tensor | None) -> Tensor:
    """s_k = sum_i c_ik u_ik: (N, K, I, D) and (N, K, I) to (N, K, D); float32 of bfloat16 votes."""
    wide = _wide(votes)
    if couplings is None:  # equal: a plain sum, one product less
        # In the products' order of axes onnxruntime needs no transposed copy of the votes.
        return votes.movedim(2, 0).sum(dim=0).to(wide) / votes.shape[1]
    return torch.matmul(couplings.to(votes.dtype).unsqueeze(2), votes).squeeze(2).to(wide)


def agree(votes: Tensor, poses: Tensor) -> Tensor:
    """u_ik . v_k: (N, K, I, D) and (N, K, D) to (N, K, I); float32 of bfloat16 votes."""
    return torch.matmul(votes, poses.to(votes.dtype).unsqueeze(-1)).squeeze(-1).to(_wide(votes))


def _wide(votes: Tensor) -> torch.dtype:
    """What is small is kept in: the votes' own type, but float32 for those of 16 bits."""
    return torch.promote_types(votes.dtype, torch.float32)
