from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from model.views.routing import measure_entropy, measure_support, project

Floats = NDArray[np.float32]
R, K, TYPES, ROWS, COLUMNS, D = 3, 4, 2, 3, 4, 5
I = TYPES * ROWS * COLUMNS  # noqa: E741  the paper's letter


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def votes(rng: np.random.Generator) -> Floats:
    return rng.standard_normal((K, I, D)).astype(np.float32)


@pytest.fixture
def couplings(rng: np.random.Generator) -> Floats:
    shares = rng.random((R, K, I), dtype=np.float32)
    return shares / shares.sum(axis=1, keepdims=True)


@pytest.fixture
def poses(couplings: Floats, votes: Floats) -> Floats:
    """What the votes add up to, without a squash, which changes no direction."""
    return np.einsum("rki,kid->rkd", couplings, votes)


def places() -> Iterator[tuple[int, int, int]]:
    return ((r, k, i) for r in range(R) for k in range(K) for i in range(I))


def test_support_is_each_vote_s_share_along_the_pose(
    couplings: Floats, votes: Floats, poses: Floats
) -> None:
    """A slow loop over every capsule gives the same."""
    found = measure_support(couplings, votes, poses)
    for r, k, i in places():
        along = sum(float(votes[k, i, d]) * float(poses[r, k, d]) for d in range(D))
        length = math.sqrt(sum(float(x) ** 2 for x in poses[r, k]))
        assert float(couplings[r, k, i]) * along / length == pytest.approx(
            float(found[r, k, i]), abs=1e-5
        )


def test_couplings_that_are_no_distribution_have_no_entropy() -> None:
    """A softmax to which something is added, or whose parts are subtracted."""
    equal = np.full((1, K, I), 1 / K, np.float32)
    moved = equal.copy()
    moved[:, :2] += np.array([[[1.0], [-1.0]]], np.float32)
    logits, seen = np.zeros_like(equal), np.ones(I, np.float32)
    assert pytest.approx([1]) == measure_entropy(equal, logits, seen)
    assert measure_entropy(equal + 0.1, logits, seen) is None
    assert measure_entropy(moved, logits, seen) is None


def test_votes_in_a_plane_keep_their_distances(rng: np.random.Generator) -> None:
    """Where all votes lie in one plane, the projection loses nothing."""
    basis = np.linalg.qr(rng.standard_normal((D, 2)))[0]
    votes = rng.standard_normal((I, 2)) @ basis.T + 3
    points, explained = project(votes, np.ones(I, np.float32))
    expected = np.linalg.norm(votes[:, None] - votes[None], axis=-1)
    assert np.allclose(expected, np.linalg.norm(points[:, None] - points[None], axis=-1))
    assert 1 == pytest.approx(explained.sum())
