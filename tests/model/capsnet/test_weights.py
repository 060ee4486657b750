"""A bundle's weights in torch again, and the networks that ship."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from model.bundle import MANIFEST, WEIGHTS, Bundle, BundleError, digest
from model.bundle.files import version_of
from model.capsnet import FAMILIES, Network, load
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


@families
def test_a_loaded_network_can_be_trained_further(family: str, family_bundles: Path) -> None:
    """Its weights are float32 and take a step."""
    network = load(family_bundles / f"tiny-{family}").train()
    assert {torch.float32} == {parameter.dtype for parameter in network.parameters()}
    before = [parameter.clone() for parameter in network.parameters()]
    network(torch.rand(4, 1, 28, 28)).presence[:, 0].sum().backward()
    torch.optim.SGD(network.parameters(), lr=1.0).step()
    pairs = zip(before, network.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in pairs)


def test_a_bundle_that_ships_is_found_by_name() -> None:
    """`load("mnist-compact")` is the network of 28x28 digits."""
    network: Network = load("mnist-compact")
    assert (1, 28, 28) == network.config.image_shape


def test_a_bundle_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The same error as the runtime's."""
    with pytest.raises(BundleError, match="nowhere' is neither a folder with a bundle nor"):
        load(tmp_path / "nowhere")


@pytest.fixture
def copy(bundle_path: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle_path, tmp_path / "copy"))


def rewrite(folder: Path, change: dict[str, Any]) -> None:
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))


@pytest.mark.parametrize(
    "training",
    [
        {},
        {"recipe": "mnist"},
        {"recipe": {"network": {"family": "hinton"}}},
        {"recipe": {"network": {"family": "dynamic", "capsules": 3}}},
        {"recipe": {"network": {"family": "dynamic"}}},
    ],
    ids=["no recipe", "no network", "another family", "another setting", "other sizes"],
)
def test_weights_that_fit_no_recipe_are_refused(training: dict[str, Any], copy: Path) -> None:
    """The message names the bundle."""
    rewrite(copy, {"training": training})
    with pytest.raises(
        BundleError, match=r"copy: (its weights cannot be loaded|manifest.json: training)"
    ):
        load(copy)


def test_a_missing_tensor_is_refused(copy: Path) -> None:
    """A network is loaded whole or not at all."""
    tensors = load_file(copy / WEIGHTS)
    del tensors["votes.weight"]
    save_file(tensors, copy / WEIGHTS)
    digests = json.loads((copy / MANIFEST).read_text())["sha256"]
    digests[WEIGHTS] = digest(copy / WEIGHTS, copy)
    rewrite(copy, {"sha256": digests, "version": version_of(digests[WEIGHTS])})
    with pytest.raises(BundleError, match=r"Missing key.*votes\.weight"):
        load(copy)
