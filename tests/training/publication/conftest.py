"""An untrained network, exported in 16 and in 8 bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from model.bundle import Bundle, Manifest
from model.capsnet import CapsNet, CapsNetConfig
from training.data.datasets import Examples
from training.publication.export import export_bundle


@pytest.fixture(scope="session", params=[16, 8], ids="{} bits".format)
def bits(request: pytest.FixtureRequest) -> int:
    """In which weights are stored."""
    return int(request.param)


@pytest.fixture(scope="session")
def config() -> CapsNetConfig:
    """Of a network small enough to be exported in seconds, all of whose matrices are stored."""
    return CapsNetConfig(
        conv_channels=16, primary_types=2, decoder_hidden=(64, 80), class_bias=True
    )


@pytest.fixture(scope="session")
def untrained(config: CapsNetConfig, bits: int) -> CapsNet:
    """An untrained network; exporting rounds its weights to `bits`."""
    with torch.random.fork_rng():
        torch.manual_seed(bits)
        return CapsNet(config).eval()


@pytest.fixture(scope="session")
def manifest() -> Manifest:
    """What is known of the network before it is exported."""
    return Manifest(
        name="tiny",
        dataset="mnist",
        class_names=tuple("0123456789"),
        image_size=28,
        class_dim=16,
        preprocess="digit",
        routing_iterations=3,
        primary_types=2,
        primary_grid=6,
        opset=20,
        primary_field_px=17,
        primary_stride_px=2,
    )


@pytest.fixture(scope="session")
def digits() -> Examples:
    """Noise in place of validation digits."""
    rng = np.random.default_rng(0)
    return Examples(
        rng.integers(0, 256, (20, 28, 28), dtype=np.uint8),
        rng.integers(0, 10, 20, dtype=np.uint8),
    )


@pytest.fixture(scope="session")
def exported(
    untrained: CapsNet,
    manifest: Manifest,
    digits: Examples,
    bits: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> Bundle:
    """The network's bundle."""
    target = tmp_path_factory.mktemp("bundles") / "tiny"
    return export_bundle(untrained, manifest, target, validation=digits, bits=bits)
