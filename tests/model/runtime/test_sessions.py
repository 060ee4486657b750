from __future__ import annotations

import numpy as np
import pytest

from model.preprocess import Floats
from model.runtime import Runtime
from model.runtime.cpu import open_session
from model.runtime.sessions import BucketedSession


@pytest.fixture(scope="module")
def images() -> Floats:
    """Twenty images of noise."""
    return np.random.default_rng(0).random((20, 1, 28, 28), np.float32)


@pytest.fixture(scope="module")
def bucketed(runtime: Runtime) -> BucketedSession:
    """The encoder in buckets of 1, 2, 4 and 6 rows, with fixed buffers on the CPU."""
    session = open_session(runtime.bundle.graph("encoder"), threads=1)
    return BucketedSession(session, 6)


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
