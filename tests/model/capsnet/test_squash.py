from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from model.capsnet.squash import length, squash

DTYPES = [torch.float32, torch.bfloat16]
NORMS = [1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3]


def _vectors_of_norm(norm: float, count: int = 50) -> Tensor:
    directions = torch.randn(count, 8, dtype=torch.float64)
    return norm * torch.nn.functional.normalize(directions, dim=-1)


def test_squash_follows_the_equation() -> None:
    """Each vector equals |s|^2 / (1 + |s|^2) * s / |s|, computed one number at a time."""
    capsules = torch.randn(3, 4, 5, dtype=torch.float64)

    for actual, vector in zip(
        squash(capsules).reshape(-1, 5).tolist(), capsules.reshape(-1, 5).tolist(), strict=True
    ):
        norm = math.sqrt(sum(x * x for x in vector))
        expected = [norm**2 / (1 + norm**2) * x / norm for x in vector]
        assert expected == pytest.approx(actual, abs=1e-6)


def test_a_unit_vector_is_halved() -> None:
    """A length of one becomes a length of one half."""
    vectors = _vectors_of_norm(1.0)

    torch.testing.assert_close(squash(vectors), vectors / 2, atol=1e-6, rtol=0)


@pytest.mark.parametrize("norm", NORMS)
def test_squashed_vectors_are_shorter_than_one(norm: float) -> None:
    """However long the input, the length stays a probability."""
    assert squash(_vectors_of_norm(norm).float()).norm(dim=-1).max().item() < 1


@pytest.mark.parametrize("norm", NORMS)
def test_squash_keeps_the_direction(norm: float) -> None:
    """Input and output point the same way."""
    vectors = _vectors_of_norm(norm)

    cosines = torch.nn.functional.cosine_similarity(vectors, squash(vectors), dim=-1, eps=1e-30)

    torch.testing.assert_close(cosines, torch.ones_like(cosines))


def test_longer_vectors_stay_longer() -> None:
    """Squashing never changes which of two capsules is the longer."""
    ray = torch.linspace(0, 20, 200, dtype=torch.float64).unsqueeze(-1) * _vectors_of_norm(1.0, 1)

    assert (squash(ray).norm(dim=-1).diff() > 0).all()


def test_each_vector_is_squashed_by_its_own_length() -> None:
    """The norm runs over the last axis alone, so the other vectors have no say."""
    capsules = torch.randn(2, 3, 4)

    torch.testing.assert_close(squash(capsules)[1, 2], squash(capsules[1, 2]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_type_is_kept(dtype: torch.dtype) -> None:
    """No promotion happens on the way."""
    assert dtype == squash(torch.ones(2, 3, dtype=dtype)).dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_zero_vector_stays_zero(dtype: torch.dtype) -> None:
    """Nothing is divided by zero."""
    zeros = torch.zeros(2, 3, dtype=dtype)

    assert torch.equal(zeros, squash(zeros))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", [squash, length])
def test_the_gradient_at_zero_is_finite(
    function: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    """A dead capsule does not poison the weights with NaN."""
    zeros = torch.zeros(2, 3, dtype=dtype, requires_grad=True)

    (gradient,) = torch.autograd.grad(function(zeros).sum(), zeros)

    assert gradient.isfinite().all()


def test_the_gradient_of_squash_is_its_derivative() -> None:
    """Numerical and analytical derivatives agree, so nothing on the way is detached."""
    capsules = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(squash, (capsules,))


@pytest.mark.parametrize("norm", [0.01, 0.5, 3.0])
def test_length_is_the_euclidean_norm(norm: float) -> None:
    """The epsilon under the root is invisible beside any real capsule."""
    lengths = length(_vectors_of_norm(norm))

    torch.testing.assert_close(lengths, torch.full_like(lengths, norm), atol=1e-5, rtol=0)


def test_length_drops_only_the_last_axis() -> None:
    """Axes of size one stay, so a batch of one with one class keeps its shape."""
    assert length(torch.ones(1, 1, 4)).shape == (1, 1)
