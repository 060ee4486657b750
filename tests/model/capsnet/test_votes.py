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


@pytest.mark.parametrize("count", [1, 2, 30])
def test_shared_weights_take_any_number_of_capsules(count: int) -> None:
    """One transformation, stored once."""
    votes, primary = layer(None), torch.randn(2, count, E)
    assert (E, K * D) == votes.weight.shape
    torch.testing.assert_close(votes(primary), slow_votes(primary, votes.weight))


@pytest.mark.parametrize("capsules", [I, None], ids=["own", "shared"])
def test_votes_stay_in_float32_under_autocast(capsules: int | None) -> None:
    """Half-precision training leaves votes exact."""
    votes, primary = layer(capsules), torch.randn(2, I, E)
    expected = votes(primary)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(expected, votes(primary))


def test_half_precision_weights_give_float32_votes() -> None:
    """As in the float16 encoder: factors are rounded, sums come out wide."""
    votes, primary = layer(I), torch.randn(2, I, E)
    half = Votes(I, in_dim=E, classes=K, out_dim=D, std=0.1).half()
    half.load_state_dict(votes.state_dict())
    assert torch.float32 == half(primary).dtype
    torch.testing.assert_close(half(primary), votes(primary), atol=2e-2, rtol=0)


def test_factored_votes_give_the_same_sums() -> None:
    """Of all, weighted, and of their products with poses."""
    votes, primary = layer(I), torch.randn(2, I, E)
    couplings, poses = torch.rand(2, K, I), torch.randn(2, K, D)
    whole, factored = slow_votes(primary, votes.weight), votes.factored(primary)
    torch.testing.assert_close(factored.total(), whole.sum(dim=2))
    weighed = (couplings[..., None] * whole).sum(dim=2)
    torch.testing.assert_close(factored.weigh(couplings), weighed)
    torch.testing.assert_close(factored.agree(poses), (whole * poses[:, :, None]).sum(dim=-1))


def test_weights_are_drawn_within_two_deviations() -> None:
    """Truncated normal, which leaves 0.88 of its sigma."""
    weight = Votes(100, in_dim=8, classes=10, out_dim=4, std=0.1).weight
    assert weight.abs().max().item() <= 0.2
    assert pytest.approx(weight.std().item(), rel=0.05) == 0.088
