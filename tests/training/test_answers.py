from __future__ import annotations

import numpy as np
import pytest
import torch

from model.capsnet import build
from training.answers import (
    is_missed,
    is_wrong,
    measure_presence,
)
from training.data.datasets import Examples
from training.recipes import Recipe

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param([[1, 3], [3, 0]], (0, 0), id="in any order"),
        pytest.param([[1, 2], [0, 3]], (50, 25), id="one digit of four missed"),
        pytest.param([[0, 2], [0, 3]], (50, 50), id="a whole pair missed"),
        pytest.param([[1, 0], [2, 3]], (100, 50), id="half of each pair missed"),
    ],
)
def test_errors_on_pairs(labels: list[list[int]], expected: tuple[int, int]) -> None:
    """A pair is right where both digits are named; digits are counted apart."""
    presence = np.array([[0.1, 0.9, 0.3, 0.4], [0.8, 0.2, 0.1, 0.9]], np.float32)
    missed = is_missed(presence, np.array(labels, np.uint8))
    assert expected == (100 * missed.any(axis=1).mean(), 100 * missed.mean())
    assert missed.any(axis=1).tolist() == is_wrong(presence, np.array(labels, np.uint8)).tolist()


def test_a_network_is_measured_in_evaluation_mode_and_goes_back(
    bars: Examples, tiny_attention: Recipe
) -> None:
    """Statistics of batches are neither used nor changed, and frozen parts stay as they were."""
    network = build(tiny_attention.network).train()
    network.decoder.eval()
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    alone = measure_presence(network, bars.images[:1], CPU)
    assert np.allclose(alone, measure_presence(network, bars.images, CPU)[:1], atol=1e-6)
    assert (True, False) == (network.training, network.decoder.training)
    for name, tensor in network.state_dict().items():
        assert torch.equal(state[name], tensor)
