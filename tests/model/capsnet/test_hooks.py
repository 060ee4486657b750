from __future__ import annotations

import pytest
import torch
from torch import nn

from model.capsnet import Network
from tests.model.capsnet.networks import TINY, lively, noise

ITERATING = {"dynamic": 2, "shared": 1, "matrix": 2, "attention": 1}
"""How often couplings are computed in each family's tiny network."""


@pytest.fixture(params=ITERATING)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def network(family: str) -> Network:
    torch.manual_seed(0)
    return lively(TINY[family])


def couplings_of(network: Network) -> nn.Module:
    routed = "classes" if hasattr(network, "classes") else "routing"
    return network.get_submodule(f"{routed}.couplings")


def test_a_hook_overrides_couplings(network: Network) -> None:
    """Uniform ones are routing switched off, in the answer and in the trace."""
    images = noise(network.config)
    with torch.inference_mode():
        plain = network(images).presence
        handle = couplings_of(network).register_forward_hook(
            lambda _l, _i, output: torch.full_like(output, 1 / output.shape[1])
        )
        changed = network(images).presence
        trace = network.trace(images).classes
        handle.remove()
        assert not torch.allclose(plain, changed, atol=1e-4)
        assert torch.allclose(changed, trace.presence[:, -1], atol=1e-6)
        assert torch.allclose(torch.tensor(1 / 10), trace.couplings)
        assert torch.equal(plain, network(images).presence)
