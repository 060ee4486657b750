"""A network of every family, and numbers that are the same in every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from model.capsnet import Network, family_of
from tests.model.capsnet.networks import SMALL, lively


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    """Every test draws the same numbers and leaves the global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(params=SMALL)
def any_network(request: pytest.FixtureRequest) -> Network:
    """A small network of each family in turn, its running statistics unlike fresh ones."""
    return lively(SMALL[request.param])


@pytest.fixture(params=[name for name in SMALL if "trace" in family_of(SMALL[name]).offers])
def routed_network(request: pytest.FixtureRequest) -> Network:
    """The same, of those families that have routing."""
    return lively(SMALL[request.param])
