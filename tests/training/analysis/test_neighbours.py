from __future__ import annotations

from pathlib import Path

import numpy as np

from model.bundle import CARD, NEIGHBOURS, Bundle
from model.preprocess import scale
from model.runtime import Runtime
from tests.training.published import HELD_OUT, TRAINING
from training.analysis.bundle import analyse_neighbours
from training.analysis.neighbours import choose
from training.card import write_card
from training.evaluate import training_data_of


def test_poses_are_those_of_the_training_images(bundle: Bundle, data_dir: Path) -> None:
    """Of their own class; held-out images are not among them, and no other file is touched."""
    weights = bundle.manifest.sha256
    analyse_neighbours(bundle, data_dir)
    manifest = Bundle.open(bundle.path).manifest
    assert manifest.neighbours
    gallery = manifest.neighbours.gallery
    assert gallery
    training = training_data_of(bundle, data_dir).training
    assert TRAINING - HELD_OUT == len(gallery.poses)
    poses = Runtime(bundle, device="cpu").encode(scale(training.images)).poses
    own = poses[np.arange(len(poses)), training.labels]
    for pose in gallery.poses:
        assert min(np.abs(np.array(one) - pose).max() for one in own) < 1e-3
    others = weights.keys() - {NEIGHBOURS}
    assert {name: weights[name] for name in others} == {
        name: manifest.sha256[name] for name in manifest.sha256.keys() - {NEIGHBOURS}
    }
    assert manifest.version == bundle.manifest.version


def test_images_without_a_licence_stay_out(bundle: Bundle, data_dir: Path) -> None:
    """The toys have none: the bundle has poses alone, and its card says so."""
    found = analyse_neighbours(bundle, data_dir)
    assert found.manifest.neighbours
    assert found.manifest.neighbours.gallery
    assert 0 == len(found.manifest.neighbours.gallery.sheet)
    write_card(found)
    assert "has their poses alone" in (bundle.path / CARD).read_text()


def test_classes_get_equal_shares() -> None:
    """Those that are answered wrongly only where others are missing."""
    labels = np.array([0] * 8 + [1] * 3)[:, None]
    right = np.array([False, True] * 4 + [True, False, False])
    chosen = choose(labels, right, classes=2, count=6)
    assert [1, 3, 5] == [row for row in chosen.tolist() if row < 8]
    assert [8, 9, 10] == [row for row in chosen.tolist() if row >= 8]
