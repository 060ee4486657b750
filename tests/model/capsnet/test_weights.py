"""A bundle's weights in torch again, and the networks that ship."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from model.bundle import Bundle
from model.capsnet import FAMILIES, load
from model.runtime import Runtime

families = pytest.mark.parametrize("family", FAMILIES)


@families
def test_a_loaded_network_answers_as_the_runtime_does(family: str, family_bundles: Path) -> None:
    """Of every family: presence and poses of the same images, from the same file of weights."""
    bundle = Bundle.open(family_bundles / f"tiny-{family}")
    images = np.random.default_rng(0).random((5, 1, 28, 28), np.float32)
    network = load(bundle)
    with torch.inference_mode():
        expected = network(torch.from_numpy(images))
    assert not network.training
    for wanted, actual in zip(expected, Runtime(bundle, device="cpu").encode(images), strict=True):
        np.testing.assert_allclose(actual, wanted.numpy(), atol=1e-4)
