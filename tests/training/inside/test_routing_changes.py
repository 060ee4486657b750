from __future__ import annotations

import numpy as np
import pytest
import torch

from model.capsnet.routing import trace
from model.runtime import Runtime
from training.inside.routing_changes import ITERATIONS, recover_bias, routing_changes


@pytest.fixture
def votes() -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.3, (2, 3, 12, 4)).astype(np.float32)


def test_the_bias_is_read_off_the_first_iteration(votes: np.ndarray) -> None:
    """A bundle does not tell its bias, but its first poses do."""
    bias = torch.from_numpy(np.random.default_rng(1).normal(0, 0.2, (3, 4)).astype(np.float32))
    poses = trace(torch.from_numpy(votes[:1]), iterations=1, bias=bias).poses[:, 0]
    assert np.allclose(bias.numpy(), recover_bias(votes[:1], poses.numpy()), atol=1e-4)


def test_a_bundle_is_routed_for_longer_than_it_was_trained(runtime: Runtime) -> None:
    """Nine iterations of a network of three; the first two are in its own graph."""
    images = np.random.default_rng(0).random((10, 1, 28, 28), np.float32)
    found = routing_changes(runtime, images)
    assert (ITERATIONS,) == found.logits.shape == found.couplings.shape
    logits = runtime.route(images).logits
    expected = np.abs(np.diff(logits, axis=1)).mean(axis=(0, 2, 3))
    assert expected.tolist() == pytest.approx(found.logits[:2].tolist(), rel=0.01)
