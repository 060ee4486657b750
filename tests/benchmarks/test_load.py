"""The load program against a service that answers correctly, and against one that fails."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from benchmarks.load import commands, describe, load, running

pytestmark = pytest.mark.skipif(not shutil.which("wrk"), reason="needs wrk")
PATH = "/classify?model=mnist-compact"


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    """The address of the plain service with one worker."""
    services = commands("mnist-compact")
    name = next(name for name in services if name.endswith("threads"))
    with running(services[name], PATH) as url:
        yield url


def test_answers_of_the_plain_service_are_counted(plain: str) -> None:
    """It labels all samples correctly, or it would not have been started."""
    assert 0 < load(plain, 2, 1)


def test_an_answer_that_is_not_200_fails(plain: str) -> None:
    """A fast service of errors would look good."""
    with pytest.raises(AssertionError, match="faults"):
        load(plain.replace("/classify", "/nothing"), 1, 1)


def test_a_rate_has_its_range() -> None:
    """The median and both ends."""
    assert "1,500 (900 to 2,000)" == describe([900, 2000, 1500])
