from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from model.capsnet.squash import (
    length,
    squash,
    squash_exponential,
    squash_half,
)

Function = Callable[[Tensor], Tensor]
SQUASHES = [squash, squash_exponential, squash_half]
squashes = pytest.mark.parametrize("function", SQUASHES)
FACTORS: dict[Function, Callable[[float], float]] = {
    squash: lambda n: n**2 / (1 + n**2),
    squash_exponential: lambda n: 1 - math.exp(-n),
    squash_half: lambda n: n**2 / (0.5 + n**2),
}
"""The length that each gives to a vector of length n, as its paper writes it."""


def _vectors_of_norm(norm: float, count: int = 50) -> Tensor:
    directions = torch.randn(count, 8, dtype=torch.float64)
    return norm * torch.nn.functional.normalize(directions, dim=-1)


@squashes
def test_squashes_follow_their_equations(function: Function) -> None:
    """Each vector keeps its direction and gets the paper's length, one number at a time."""
    capsules = torch.randn(3, 4, 5, dtype=torch.float64)

    for actual, vector in zip(
        function(capsules).reshape(-1, 5).tolist(), capsules.reshape(-1, 5).tolist(), strict=True
    ):
        norm = math.sqrt(sum(x * x for x in vector))
        expected = [FACTORS[function](norm) * x / norm for x in vector]
        assert expected == pytest.approx(actual, abs=1e-6)


@pytest.mark.parametrize("norm", [0.0, 44.0, 200.0, 1e4])
@pytest.mark.parametrize("function", [*SQUASHES, length])
def test_long_vectors_have_finite_gradients(function: Function, norm: float) -> None:
    """1 - 1 / exp(n), as published, has a gradient of NaN from a norm of 44 on."""
    vectors = _vectors_of_norm(norm).float().requires_grad_()

    values = function(vectors)
    (gradient,) = torch.autograd.grad(values.sum(), vectors)

    assert values.isfinite().all()
    assert gradient.isfinite().all()
