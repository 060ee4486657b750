from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import Tensor

from model.capsnet.routing import route, trace
from model.capsnet.squash import squash

K, I, D = 3, 7, 4  # noqa: E741 - the paper's letters


@pytest.fixture
def votes() -> Tensor:
    """Random votes of two images."""
    return torch.randn(2, K, I, D, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def bias() -> Tensor:
    """A learned bias of the class capsules."""
    return torch.randn(K, D, dtype=torch.float64, requires_grad=True)


def _gradient(poses: Tensor, leaf: Tensor) -> Tensor:
    weights = torch.arange(1.0, poses.numel() + 1, dtype=poses.dtype).reshape(poses.shape)
    return torch.autograd.grad((poses * weights).sum(), leaf)[0]


def _frozen(votes: Tensor, iterations: int, bias: Tensor | None = None) -> Tensor:
    """The last weighted sum alone, its couplings taken as constants."""
    couplings = trace(votes, iterations=iterations, bias=bias).couplings[:, -1].detach()
    weighted = (couplings.unsqueeze(-1) * votes).sum(dim=2)
    return squash(weighted if bias is None else weighted + bias)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_the_whole_gradient_is_the_derivative(votes: Tensor, iterations: int) -> None:
    """With "all", numerical and analytical derivatives of routing agree."""
    assert torch.autograd.gradcheck(lambda u: route(u, iterations=iterations), (votes,))


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_the_last_gradient_takes_couplings_as_constants(votes: Tensor, iterations: int) -> None:
    """With "last", nothing flows into the votes through the early iterations."""
    actual = _gradient(route(votes, iterations=iterations, gradient="last"), votes)

    torch.testing.assert_close(actual, _gradient(_frozen(votes, iterations), votes))


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_the_last_gradient_reaches_the_bias_once(
    votes: Tensor, bias: Tensor, iterations: int
) -> None:
    """With "last", nothing flows into the bias through the early iterations either."""
    poses = route(votes, iterations=iterations, bias=bias, gradient="last")

    expected = _gradient(_frozen(votes, iterations, bias), bias)
    torch.testing.assert_close(_gradient(poses, bias), expected)


@pytest.mark.parametrize("iterations", [2, 3])
def test_the_gradients_differ_after_several_iterations(votes: Tensor, iterations: int) -> None:
    """The couplings' own dependence on the votes is what "last" leaves out."""
    whole = _gradient(route(votes, iterations=iterations, gradient="all"), votes)
    last = _gradient(route(votes, iterations=iterations, gradient="last"), votes)

    assert (whole - last).abs().max() > 1e-2


def test_the_gradients_are_equal_for_one_iteration(votes: Tensor) -> None:
    """The only iteration is also the last."""
    whole = _gradient(route(votes, iterations=1, gradient="all"), votes)

    torch.testing.assert_close(_gradient(route(votes, iterations=1, gradient="last"), votes), whole)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_the_choice_of_gradient_leaves_the_poses_alone(votes: Tensor, iterations: int) -> None:
    """Forward, "all" and "last" are the same function."""
    whole, last = (
        route(votes, iterations=iterations, gradient=gradient) for gradient in ("all", "last")
    )

    assert torch.equal(whole, last)


@pytest.mark.parametrize("gradient", ["all", "last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_silent_votes_give_no_nan(dtype: torch.dtype, gradient: Literal["all", "last"]) -> None:
    """Zero votes route to zero poses with a finite gradient."""
    votes = torch.zeros(1, K, I, D, dtype=dtype, requires_grad=True)

    poses = route(votes, iterations=3, gradient=gradient)

    assert torch.equal(torch.zeros(1, K, D, dtype=dtype), poses)
    assert _gradient(poses, votes).isfinite().all()
