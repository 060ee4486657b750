from __future__ import annotations

import numpy as np
import pytest
import torch

from model.capsnet import Network, build
from model.runtime import Runtime
from tests.conftest import TINY
from training.analysis.routing import ITERATIONS, measure_changes, with_iterations

IMAGES = np.random.default_rng(0).random((10, 1, 28, 28), np.float32)


def test_a_network_is_routed_for_longer_than_it_was_trained(
    network: Network, runtime: Runtime
) -> None:
    """Nine iterations of a network of three; the first two are in its bundle's graph."""
    found = measure_changes(network, IMAGES)
    logits = runtime.trace(IMAGES).classes.logits
    expected = np.abs(np.diff(logits, axis=1)).mean(axis=(0, 2, 3))
    assert [(ITERATIONS,)] * 2 == [values.shape for values in found.values()]
    assert expected.tolist() == pytest.approx(found["logit"][:2].tolist(), rel=0.01)


@pytest.mark.parametrize("family", ["dynamic", "shared", "matrix"])
def test_a_longer_network_has_the_same_weights(family: str) -> None:
    """With as many iterations as before it answers the same, with more another thing."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        short = build(TINY[family]).eval()
    images = torch.from_numpy(IMAGES)
    same = with_iterations(short, short.layers[-1].iterations)
    longer = with_iterations(short, ITERATIONS)
    assert ITERATIONS == longer.layers[-1].iterations
    with torch.inference_mode():
        assert torch.equal(short(images).poses, same(images).poses)
        assert not torch.equal(short(images).poses, longer(images).poses)


@pytest.mark.parametrize("family", ["attention", "baseline"])
def test_networks_without_iterations_have_no_curve(family: str) -> None:
    """The message says so."""
    with pytest.raises(ValueError, match="does not iterate"):
        measure_changes(build(TINY[family]), IMAGES)
