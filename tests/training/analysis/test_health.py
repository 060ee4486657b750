"""What critics of capsules measure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from model.capsnet import build
from model.runtime import Runtime
from tests.model.capsnet.networks import TINY
from tests.training.published import HELD_OUT, say_training
from training.analysis.health import (
    effective_dims,
    entropy,
    measure_health,
    polarisation,
    presence_negated,
)
from training.answers import answer_images
from training.evaluate import training_data_of

RNG = np.random.default_rng(0)
UNIFORM = np.full((4, 3), 0.25)
ONE_PARENT = np.eye(4)[:, :3]
IMAGES = RNG.random((4, 1, 28, 28), np.float32)


def test_entropy_and_polarisation_are_opposite_ends() -> None:
    """Uniform shares have an entropy of one and no polarisation; one parent is the reverse."""
    assert np.allclose(1, entropy(UNIFORM))
    assert np.allclose(0, polarisation(UNIFORM))
    assert np.allclose(0, entropy(ONE_PARENT), atol=1e-9)
    assert np.allclose(1, polarisation(ONE_PARENT))


def test_effective_dimensions_count_directions() -> None:
    """Of a round cloud all, of a line one; the mean over classes."""
    round_cloud = RNG.normal(size=(4000, 4)).astype(np.float32)
    line = round_cloud[:, :1] * np.ones(4, np.float32)
    poses, labels = np.concatenate((round_cloud, line)), np.repeat([0, 1], 4000)
    assert 4 == pytest.approx(effective_dims(round_cloud, labels[:4000]), abs=0.05)
    assert 2.5 == pytest.approx(effective_dims(poses, labels), abs=0.05)


@pytest.mark.parametrize("family", ["dynamic", "attention", "shared"])
def test_lengths_without_a_bias_do_not_see_a_sign(family: str) -> None:
    """Votes are linear in the poses: x and -x have the same presence; the network stays."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build(TINY[family]).eval()
    before = network(torch.from_numpy(IMAGES)).presence.detach().numpy()
    assert (negated := presence_negated(network, IMAGES)) is not None
    assert np.allclose(before, negated, atol=1e-6)
    assert np.allclose(before, network(torch.from_numpy(IMAGES)).presence.detach().numpy())


def test_votes_that_know_their_place_see_a_sign() -> None:
    """Votes of matrix capsules add coordinates to what the poses give."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build(TINY["matrix"]).eval()
    before = network(torch.from_numpy(IMAGES)).presence.detach().numpy()
    assert (negated := presence_negated(network, IMAGES)) is not None
    assert not np.allclose(before, negated, atol=1e-6)


@pytest.mark.parametrize("family", ["dynamic", "attention", "shared", "matrix"])
def test_every_family_that_routes_is_measured(
    family: str, family_bundles: Path, data_dir: Path
) -> None:
    """Each of its layers has couplings by iteration."""
    bundle = say_training(family_bundles / f"tiny-{family}", data_dir / family)
    layers = bundle.manifest.layers
    held_out = answer_images(Runtime(bundle), training_data_of(bundle, data_dir).validation)
    health = measure_health(bundle, held_out, described="")
    assert HELD_OUT == health.count
    assert [layer.name for layer in layers] == [one.layer for one in health.couplings]
    assert [layer.iterations for layer in layers] == [len(one.entropy) for one in health.couplings]
    assert "classes" == health.capsules[-1].layer
    assert 1 <= health.parse_trees <= health.images_per_class
    if family == "dynamic":  # couplings are uniform at first
        assert 1 == health.couplings[-1].entropy[0] >= health.couplings[-1].entropy[-1]
