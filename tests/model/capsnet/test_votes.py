from __future__ import annotations

import pytest
import torch
from torch import Tensor

from model.capsnet.votes import Votes

I, E, K, D = 6, 3, 4, 5  # noqa: E741 - the paper's letters


def layer(capsules: int | None) -> Votes:
    """All its weights random."""
    votes = Votes(capsules, in_dim=E, classes=K, out_dim=D, std=0.1)
    torch.nn.init.normal_(votes.weight)
    return votes


def slow_votes(capsules: Tensor, weight: Tensor) -> Tensor:
    """u_i W_i, each number a sum of products; one W for all where there is but one."""
    batch, inputs, _ = capsules.shape
    votes = torch.zeros(batch, K, inputs, D)
    u, w = capsules.tolist(), weight.expand(inputs, E, K * D).tolist()
    for n in range(batch):
        for k in range(K):
            for i in range(inputs):
                for d in range(D):
                    votes[n, k, i, d] = sum(u[n][i][e] * w[i][e][k * D + d] for e in range(E))
    return votes


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("capsules", [I, None], ids=["own", "shared"])
def test_a_vote_is_the_capsule_times_its_matrix(capsules: int | None, batch: int) -> None:
    """Vote (k, i) is u_i W_ik, or u_i W_k where all share their weights."""
    votes, primary = layer(capsules), torch.randn(batch, I, E)
    torch.testing.assert_close(votes(primary), slow_votes(primary, votes.weight))


def test_factored_votes_give_the_same_sums() -> None:
    """Of all, weighted, and of their products with poses."""
    votes, primary = layer(I), torch.randn(2, I, E)
    couplings, poses = torch.rand(2, K, I), torch.randn(2, K, D)
    whole, factored = slow_votes(primary, votes.weight), votes.factored(primary)
    torch.testing.assert_close(factored.total(), whole.sum(dim=2))
    weighed = (couplings[..., None] * whole).sum(dim=2)
    torch.testing.assert_close(factored.weigh(couplings), weighed)
    torch.testing.assert_close(factored.agree(poses), (whole * poses[:, :, None]).sum(dim=-1))
