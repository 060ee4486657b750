from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from model.bundle import Layer
from model.views.agreement import (
    agreement,
    are_shares,
    by_type,
    entropy,
    on_grid,
    project,
    support,
    trace_agreement,
)

Floats = NDArray[np.float32]
R, K, TYPES, ROWS, COLUMNS, D = 3, 4, 2, 3, 4, 5
I = TYPES * ROWS * COLUMNS  # noqa: E741  the paper's letter
LAYER = Layer("classes", R, TYPES, ROWS, COLUMNS, field_px=5, stride_px=2)


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
    found = support(couplings, votes, poses)
    for r, k, i in places():
        along = sum(float(votes[k, i, d]) * float(poses[r, k, d]) for d in range(D))
        length = math.sqrt(sum(float(x) ** 2 for x in poses[r, k]))
        assert float(couplings[r, k, i]) * along / length == pytest.approx(
            float(found[r, k, i]), abs=1e-5
        )


def test_equal_votes_agree_wholly(couplings: Floats) -> None:
    """Whatever the couplings, votes of one direction agree with 1, of any lengths."""
    direction = np.arange(1, D + 1, dtype=np.float32)
    lengths = np.linspace(0.1, 2, I, dtype=np.float32)
    votes = np.broadcast_to(lengths[:, None] * direction, (K, I, D))
    poses = np.einsum("rki,kid->rkd", couplings, votes)
    assert np.allclose(1, agreement(couplings, votes, poses), atol=1e-6)


def test_opposite_votes_do_not_agree() -> None:
    """Half of the votes against the other half come to nothing."""
    votes = np.ones((1, 4, D), np.float32)
    votes[:, 2:] *= -1
    couplings = np.full((1, 1, 4), 0.5, np.float32)
    pose = np.ones((1, 1, D), np.float32)
    assert 0 == agreement(couplings, votes, pose)[0, 0]


def test_nothing_to_agree_on_is_no_error() -> None:
    """Votes of zero give zero, not a division by it."""
    nothing = agreement(np.ones((1, 1, 4)), np.zeros((1, 4, D)), np.zeros((1, 1, D)))
    assert [[0.0]] == nothing.tolist()


def test_couplings_that_are_no_distribution_have_no_entropy() -> None:
    """A softmax to which something is added, or whose parts are subtracted."""
    equal = np.full((1, K, I), 1 / K, np.float32)
    assert are_shares(equal)
    assert not are_shares(equal + 0.1)
    moved = equal.copy()
    moved[:, :2] += np.array([[[1.0], [-1.0]]], np.float32)
    assert not are_shares(moved)


def test_decided_couplings_have_no_entropy() -> None:
    """A capsule that serves one class alone is decided."""
    decided = np.zeros((1, K, I), np.float32)
    decided[:, 2] = 100
    assert [0.0] == pytest.approx(entropy(decided, np.ones(I, np.float32)), abs=1e-9)


def test_capsules_that_see_nothing_have_no_say(couplings: Floats) -> None:
    """Entropy weighs by length: capsules of length zero could be left out."""
    lengths = np.zeros(I, np.float32)
    lengths[3] = 0.5
    shares = couplings[0, :, 3].astype(float)
    expected = -sum(c * math.log(c) for c in shares) / math.log(K)
    assert expected == pytest.approx(entropy(np.log(couplings), lengths)[0])


def test_maps_sum_over_types_and_over_the_grid(rng: np.random.Generator) -> None:
    """Input capsule i is type, row and column as the bundle's manifest says."""
    values = rng.random((2, I))
    grids, types = on_grid(values, LAYER), by_type(values, LAYER)
    assert ((2, ROWS, COLUMNS), (2, TYPES)) == (grids.shape, types.shape)
    for y in range(ROWS):
        for x in range(COLUMNS):
            expected = sum(values[1, (t * ROWS + y) * COLUMNS + x] for t in range(TYPES))
            assert expected == pytest.approx(grids[1, y, x])
    for t in range(TYPES):
        expected = sum(
            values[1, (t * ROWS + y) * COLUMNS + x] for y in range(ROWS) for x in range(COLUMNS)
        )
        assert expected == pytest.approx(types[1, t])


def test_subtracted_votes_agree_with_the_pose_they_oppose() -> None:
    """A vote against the pose, of negative weight, supports it like its mirror image."""
    votes = np.ones((1, 4, D), np.float32)
    votes[:, 2:] *= -1
    couplings = np.array([[[0.5, 0.5, -0.5, -0.5]]], np.float32)
    pose = np.ones((1, 1, D), np.float32)
    assert pytest.approx(1) == agreement(couplings, votes, pose)[0, 0]
    assert (support(couplings, votes, pose) > 0).all()


def test_votes_in_a_plane_keep_their_distances(rng: np.random.Generator) -> None:
    """Where all votes lie in one plane, the projection loses nothing."""
    basis = np.linalg.qr(rng.standard_normal((D, 2)))[0]
    votes = rng.standard_normal((I, 2)) @ basis.T + 3
    found = project(votes, np.ones(I))
    expected = np.linalg.norm(votes[:, None] - votes[None], axis=-1)
    points = found.points
    assert np.allclose(expected, np.linalg.norm(points[:, None] - points[None], axis=-1))
    assert 1 == pytest.approx(found.explained.sum())


def test_axes_are_ordered_and_uncorrelated(votes: Floats, couplings: Floats) -> None:
    """The weighted covariance of the points is diagonal, the larger variance first."""
    weights = couplings[0, 0]
    points = project(votes[0], weights).points
    covariance = (points * weights[:, None]).T @ points / weights.sum()
    assert abs(covariance[0, 1]) < 1e-6
    assert covariance[0, 0] >= covariance[1, 1]
    assert np.allclose(0, weights @ points, atol=1e-5)


def test_the_projection_s_sign_is_settled(votes: Floats) -> None:
    """Votes and their mirror image about the mean give mirrored points, not the same by chance."""
    weights = np.ones(I)
    points = project(votes[0], weights).points
    mirrored = project(-votes[0], weights).points
    assert np.allclose(-points, mirrored, atol=1e-6)
    assert np.array_equal(points, project(votes[0].copy(), weights).points)
    line = np.outer(np.arange(I), [1, 3, -2, 0, 0])
    assert (np.diff(project(line, weights).points[:, 0]) > 0).all()


@pytest.mark.parametrize("activated", [False, True])
def test_votes_count_by_activations_where_capsules_have_them(
    couplings: Floats, votes: Floats, poses: Floats, rng: np.random.Generator, *, activated: bool
) -> None:
    """Those of matrix capsules; the lengths of others are in their votes already."""
    presence = rng.random(I, dtype=np.float32)
    logits = rng.standard_normal((R, K, I), dtype=np.float32)
    found = trace_agreement(couplings, logits, votes, poses, presence, activated=activated)
    weights = couplings * presence if activated else couplings
    assert np.array_equal(weights, found.weights)
    assert np.array_equal(support(weights, votes, poses), found.support)
    assert np.array_equal(agreement(weights, votes, poses), found.agreement)


def test_equal_votes_are_one_point() -> None:
    """Without any variance there is no axis, and no division by zero either."""
    found = project(np.ones((I, D)), np.ones(I))
    assert np.allclose(0, found.points)
    assert np.isfinite(found.explained).all()
