"""A bundle's weights in torch again, and the networks that ship."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model.bundle import MANIFEST, Bundle, BundleError
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
