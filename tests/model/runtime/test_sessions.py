from __future__ import annotations

import numpy as np
import pytest

from model.preprocess import Floats
from model.runtime import Runtime
from model.runtime.cpu import open_session
from model.runtime.sessions import BucketedSession, Buckets


@pytest.fixture(scope="module")
def images() -> Floats:
    """Twenty images of noise."""
    return np.random.default_rng(0).random((20, 1, 28, 28), np.float32)


@pytest.fixture(scope="module")
def bucketed(runtime: Runtime) -> BucketedSession:
    """The encoder in buckets of 1, 2, 4 and 6 rows, with fixed buffers on the CPU."""
    session = open_session(runtime.bundle.graph("encoder"), threads=1)
    return BucketedSession(session, Buckets(6))


@pytest.mark.parametrize(
    ("max_rows", "sizes"),
    [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (32, (1, 2, 4, 8, 16, 32))],
)
def test_buckets_are_powers_of_two_and_the_largest(max_rows: int, sizes: tuple[int, ...]) -> None:
    """The largest batch has a bucket of its own, whatever it is."""
    assert sizes == Buckets(max_rows).sizes


@pytest.mark.parametrize("max_rows", [1, 6, 32, 100])
def test_a_batch_goes_to_the_smallest_bucket_that_holds_it(max_rows: int) -> None:
    """No batch is padded further than it must be."""
    buckets = Buckets(max_rows)
    for rows in range(1, max_rows + 1):
        holding = [size for size in buckets.sizes if size >= rows]
        assert min(holding) == buckets.size_for(rows)


@pytest.mark.parametrize(
    ("rows", "padding"), [(1, 0), (3, 1), (4, 0), (5, 1), (6, 0), (7, 0), (9, 1), (12, 0)]
)
def test_padding_is_counted(rows: int, padding: int, bucketed: BucketedSession) -> None:
    """Larger batches are split; what remains of them is padded."""
    assert padding == bucketed.padding(rows)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 20])
def test_buckets_answer_as_plain_sessions_do(
    rows: int, bucketed: BucketedSession, runtime: Runtime, images: Floats
) -> None:
    """Padding and splitting change no answer."""
    expected = runtime.encode(images[:rows])
    actual = bucketed.run(images=images[:rows])
    assert [part.shape for part in expected] == [part.shape for part in actual]
    for wanted, got in zip(expected, actual, strict=True):
        assert np.abs(wanted - got).max() <= 1e-5


def test_earlier_rows_do_not_reach_later_batches(
    bucketed: BucketedSession, runtime: Runtime, images: Floats
) -> None:
    """A bucket that was full of other rows gives the same answers again."""
    expected = runtime.encode(images[:3])
    bucketed.run(images=np.full((4, 1, 28, 28), np.nan, np.float32))
    for wanted, got in zip(expected, bucketed.run(images=images[:3]), strict=True):
        assert np.abs(wanted - got).max() <= 1e-5


def test_answers_stay_when_the_bucket_runs_again(bucketed: BucketedSession, images: Floats) -> None:
    """What a caller got is its own, not the bucket's buffer."""
    first, _ = bucketed.run(images=images[:2])
    kept = first.copy()
    bucketed.run(images=images[2:4])
    assert np.array_equal(kept, first)


def test_rows_of_another_shape_are_refused(bucketed: BucketedSession) -> None:
    """Copying into a buffer would stretch them."""
    with pytest.raises(ValueError, match="images has rows of"):
        bucketed.run(images=np.zeros((2, 1, 1, 28), np.float32))


def test_several_inputs_are_bound(runtime: Runtime) -> None:
    """The decoder takes poses and int64 classes."""
    session = open_session(runtime.bundle.graph("decoder"), threads=1)
    bucketed = BucketedSession(session, Buckets(4))
    bucketed.warm_up()
    poses = np.random.default_rng(1).random((3, 16), np.float32)
    classes = np.array([1, 9, 4])
    (drawn,) = bucketed.run(poses=poses, classes=classes)
    assert np.abs(runtime.decode(poses, classes) - drawn).max() <= 1e-5
