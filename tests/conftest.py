"""Bundles of an untrained and of a tiny trained network, and the service that serves them."""

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
from training.data.datasets import DIGITS, Examples
from training.data.pairs import fixed_pairs
from training.evaluation.pair_scores import choose_threshold
from training.publication.export import export_bundle
from training.publication.graphs import OPSET
from training.recipes import Recipe
from training.run.plan import Plan
from training.run.trainer import Trainer

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
        primary_field_px=config.primary_field_px,
        primary_stride_px=config.primary_stride_px,
    )
    noise = np.random.default_rng(0).integers(0, 256, (4, 28, 28), np.uint8)
    validation = Examples(noise, np.zeros(4, np.uint8))
    target = tmp_path_factory.mktemp("bundles") / manifest.name
    return export_bundle(network, manifest, target, validation=validation).path


@pytest.fixture(scope="session")
def strokes() -> Examples:
    """Three 28x28 images that cross: a horizontal, a vertical and a diagonal stroke."""
    images = np.zeros((3, 28, 28), np.uint8)
    images[0, 12:16, 4:24] = 255
    images[1, 4:24, 12:16] = 255
    for offset in range(-2, 3):
        rows = np.arange(5, 23)
        images[2, rows, rows + offset] = 255
    return Examples(images, np.arange(3, dtype=np.uint8))


@pytest.fixture(scope="session")
def strokes_bundle_path(
    bundle_path: Path, strokes: Examples, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The bundle `strokes` of a network that takes pairs of strokes apart, beside `mnist`."""
    network = CapsNetConfig(
        image_size=36,
        conv_channels=8,
        conv_stride=2,
        primary_types=4,
        primary_dim=4,
        num_classes=3,
        class_dim=8,
        decoder_hidden=(32, 64),
    )
    recipe = Recipe(
        "strokes",
        task="pairs",
        network=network,
        epochs=0.04,
        batch_size=16,
        learning_rate=5e-3,
        reconstruction="paper-code",
    )
    plan = Plan(recipe, 1, strokes, None, tmp_path_factory.mktemp("run"))
    with torch.random.fork_rng():
        trainer = Trainer(plan, device=torch.device("cpu"))
        for _ in range(trainer.total_steps):
            trainer.step()
    pairs = fixed_pairs(strokes, 50, size=36, shift_px=2, seed=1)
    manifest = Manifest(
        name="strokes",
        dataset="strokes",
        class_names=("horizontal", "vertical", "diagonal"),
        image_size=36,
        class_dim=network.class_dim,
        preprocess="pair",
        mask_threshold=choose_threshold(trainer.network, pairs),
        routing_iterations=network.routing_iterations,
        primary_types=network.primary_types,
        primary_grid=network.grid_size,
        primary_field_px=network.primary_field_px,
        primary_stride_px=network.primary_stride_px,
        opset=OPSET,
        training={"recipe": recipe.to_dict()},
    )
    target = bundle_path.with_name(manifest.name)
    return export_bundle(trainer.network, manifest, target, validation=pairs).path


@pytest.fixture(scope="session")
def runtime(bundle_path: Path) -> Runtime:
    """The bundle, for tests that compare the service's answers with the network's."""
    return Runtime(Bundle.open(bundle_path), device="cpu", threads=1)


@pytest.fixture(scope="session")
def settings(strokes_bundle_path: Path) -> Settings:
    """Both bundles, and limits low enough to be reached quickly."""
    return Settings(
        bundles=strokes_bundle_path.parent,
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
