"""A real bundle of an untrained network, and the service that answers from it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from model.bundle import Bundle, Manifest
from model.capsnet import CapsNet, CapsNetConfig
from model.runtime import Runtime
from service.app import create_app
from service.bundles import load_runtimes
from service.documentation import SAMPLES
from service.engine import Engine
from service.settings import Settings
from training.datasets import DIGITS, Examples
from training.export import export_bundle
from training.graphs import OPSET

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette would rather have httpx2; httpx does the same
    from fastapi.testclient import TestClient


def pytest_addoption(parser: pytest.Parser) -> None:
    """What tests/e2e is run against."""
    parser.addoption("--image", help="a container image, instead of this source tree")
    parser.addoption("--engine", default="docker", help="what runs it: docker or podman")


@pytest.fixture(scope="session")
def network() -> CapsNet:
    """An untrained network; `bundle_path` rounds its weights to what the bundle holds."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return CapsNet(CapsNetConfig(conv_channels=8, primary_types=2, decoder_hidden=(16, 16)))


@pytest.fixture(scope="session")
def bundle_path(network: CapsNet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network's bundle, `mnist`. Tests that change it work on a copy."""
    config = network.config
    manifest = Manifest(
        name="mnist",
        dataset="mnist",
        class_names=DIGITS,
        image_size=config.image_size,
        class_dim=config.class_dim,
        preprocess="digit",
        routing_iterations=config.routing_iterations,
        primary_types=config.primary_types,
        primary_grid=config.grid_size,
        opset=OPSET,
    )
    noise = np.random.default_rng(0).integers(0, 256, (4, 28, 28), np.uint8)
    validation = Examples(noise, np.zeros(4, np.uint8))
    target = tmp_path_factory.mktemp("bundles") / manifest.name
    return export_bundle(network, manifest, target, validation=validation).path


@pytest.fixture(scope="session")
def runtime(bundle_path: Path) -> Runtime:
    """The bundle, for tests that compare the service's answers with the network's."""
    return Runtime(Bundle.open(bundle_path), device="cpu", threads=1)


@pytest.fixture(scope="session")
def settings(bundle_path: Path) -> Settings:
    """Limits low enough to be reached quickly."""
    return Settings(
        bundles=bundle_path.parent,
        default_model="mnist",
        device="cpu",
        threads=1,
        max_body_bytes=200_000,
        max_pixels=1_000_000,
        max_pictures=5,
    )


@pytest.fixture(scope="session")
def client(settings: Settings) -> Iterator[TestClient]:
    """The running service; an unexpected exception in it fails the test."""
    with TestClient(create_app(settings, Engine(load_runtimes(settings)))) as client:
        yield client


@pytest.fixture(scope="session")
def digits() -> list[bytes]:
    """A real digit of each class, 28x28 PNG, by label."""
    return [(SAMPLES / f"{label}.png").read_bytes() for label in range(10)]
