"""Self-attention routing, without iterations (Mazzia, Salvetti and Chiaberge 2021, equation 5)."""

from __future__ import annotations

import math

from torch import Tensor

from model.capsnet.network import ClassTrace
from model.capsnet.routing.by_agreement import agree, weigh
from model.capsnet.squash import length, squash_exponential


def attend(votes: Tensor, bias: Tensor) -> Tensor:
    """Logits A_ki + B_ki (N, K, I), where A_ki = u_ki . sum_j u_kj / sqrt(D).

    Args:
        votes: (N, K, I, D).
        bias: B, (K, I), learned.
    """
    total = votes.movedim(2, 0).sum(dim=0)  # (N, K, D)
    return agree(votes, total) / math.sqrt(votes.shape[-1]) + bias


def route(votes: Tensor, bias: Tensor) -> Tensor:
    """Class capsules (N, K, D) from votes (N, K, I, D) and a learned bias (K, I)."""
    couplings = attend(votes, bias).softmax(dim=1)
    return squash_exponential(weigh(votes, couplings))


def route_without_votes(capsules: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same as `route`, by three matrix products for each class instead of a tensor of votes.

    Faster in training, and slower for one image, for which W is read three times. With all inputs
    in one row, sum_i c_ki u_ki is (c_k p) W_k, and u_ki . s is p_i . (W_ki s).

    Args:
        capsules: p, (N, I, E), the input capsules.
        weight: W, (I, E, K * D): their votes are u_i = p_i W_i.
        bias: B, (K, I), learned.
    """
    count, inputs, size = capsules.shape
    classes = len(bias)
    # Inputs come last, so that the products by element run along them.
    own = capsules.transpose(1, 2).contiguous()  # (N, E, I)
    by_class = weight.reshape(inputs, size, classes, -1).permute(2, 1, 0, 3).flatten(1, 2)
    total = own.flatten(1) @ by_class  # (N, E I) and (K, E I, D) to (K, N, D)
    answer = (total @ by_class.transpose(1, 2)).reshape(classes, count, size, inputs)
    agreement = (answer * own).sum(dim=2) / math.sqrt(total.shape[-1])  # (K, N, I)
    couplings = (agreement + bias[:, None]).softmax(dim=0)
    weighed = (couplings[:, :, None] * own).flatten(2)  # (K, N, E I)
    return squash_exponential((weighed @ by_class).transpose(0, 1))


def trace(votes: Tensor, bias: Tensor, input_presence: Tensor) -> ClassTrace:
    """The same as `route`, with its one iteration kept; `input_presence` (N, I) is passed on."""
    logits = attend(votes, bias)
    couplings = logits.softmax(dim=1)
    poses = squash_exponential(weigh(votes, couplings))
    return ClassTrace(
        couplings=couplings.unsqueeze(1),
        logits=logits.unsqueeze(1),
        presence=length(poses).unsqueeze(1),
        poses=poses.unsqueeze(1),
        input_presence=input_presence,
        votes=votes,
    )
