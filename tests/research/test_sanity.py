"""Weights are randomised layer by layer; what the views show is compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from model.bundle import Bundle
from model.capsnet import build
from research import sanity
from tests.model.capsnet.networks import TINY
from tests.training.published import say_training, write_toys
from training.data.datasets import DATASETS

IMAGES = np.random.default_rng(0).random((12, 1, 28, 28), np.float32)


def test_layers_lose_their_weights_one_by_one() -> None:
    """The class capsules first; the network itself and its decoder stay."""
    network = build(TINY["dynamic"]).eval()
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    changed_layers = []
    for layer, changed in sanity.randomise(network):
        weights = changed.state_dict()
        different = {name for name in before if not torch.equal(before[name], weights[name])}
        assert not any(name.startswith("decoder") for name in different)
        assert any(name.startswith(layer) for name in different)
        changed_layers.append(layer)
    assert changed_layers[0].startswith("votes")
    assert changed_layers[-1].startswith("stem")
    assert all(torch.equal(before[name], one) for name, one in network.state_dict().items())


@pytest.mark.parametrize("family", ["dynamic", "attention", "shared", "matrix"])
def test_similarity_of_each_view_is_measured(
    family: str, family_bundles: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step for each layer, similarities from -1 to 1."""
    monkeypatch.setattr(sanity, "IMAGES", 2)
    bundle = Bundle.open(family_bundles / f"tiny-{family}")
    steps = sanity.measure(bundle, IMAGES)
    assert len(steps) >= 2
    for step in steps:
        assert {"layer", *sanity.VIEWS} == step.keys()
        assert all(-1 <= step[view] <= 1 for view in sanity.VIEWS)


def test_the_table_says_what_stays() -> None:
    """A view that is as before with all weights random is named."""
    steps = [
        {"layer": "votes", "occlusion": 0.9, "routing": 0.9, "neighbours": 0.9},
        {"layer": "stem", "occlusion": 0.8, "routing": -0.7, "neighbours": 0.4},
    ]
    text = sanity.table({"mnist": {"version": "1", "steps": steps}})
    assert "| occlusion | 0.90 | 0.80 | 0.80 | **stays** |" in text
    assert "| routing | 0.90 | -0.70 | -0.70 | **stays, inverted** |" in text
    assert "| neighbours | 0.90 | 0.40 | 0.40 | changes |" in text
    assert "python -m research sanity" in sanity.table({})


def test_bundles_of_published_images_are_checked(
    bundle_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has their version."""
    monkeypatch.setattr(sanity, "IMAGES", 2)
    monkeypatch.setitem(DATASETS, "toys", write_toys(tmp_path))
    bundles = say_training(bundle_path, tmp_path / "bundles" / "mnist").path.parent
    sanity.measure_all(
        None, bundles=bundles, docs_dir=tmp_path, data_dir=tmp_path, say=lambda _: None
    )
    measured = sanity.read(tmp_path)
    assert Bundle.open(bundles / "mnist").manifest.version == measured["mnist"]["version"]
