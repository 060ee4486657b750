"""Everything that an analysis finds is in the manifest, the card and the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from model.bundle import CARD, Bundle
from model.preprocess import scale
from model.runtime import Runtime
from tests.training.published import HELD_OUT, RUN, TRAINING, say_training
from training.analysis import bundle as analysis
from training.analysis.bundle import analyse, measure_novelty, write_findings
from training.analysis.neighbours import choose
from training.answers import answer_images
from training.data.datasets import Examples
from training.evaluate import training_data_of
from training.figures import DECODED, FIGURES


@pytest.fixture
def data_dir(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the toys, and few images of other kinds."""
    monkeypatch.setattr("training.novelty.COUNT", 5)
    monkeypatch.setattr(analysis, "MIN_IMAGES", HELD_OUT)
    return data_dir


def headings(bundle: Bundle) -> set[str]:
    text = (bundle.path / CARD).read_text()
    return {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")}


def test_an_analysed_bundle_tells_what_was_found(bundle: Bundle, data_dir: Path) -> None:
    """Names and rule are in the manifest that is read back, and all of it is in the card."""
    manifest = analyse(bundle, data_dir).manifest
    assert manifest == Bundle.open(bundle.path).manifest
    assert 1 in {one.label for one in manifest.directions}
    assert {"slant", "right"} <= {one.name for one in manifest.directions}
    assert manifest.novelty is not None
    expected = f"{HELD_OUT} training images that the network was not trained on"
    assert expected == manifest.novelty.images
    assert {"noise", "blanks", "letters", "digits (toys)"} == {
        one["kind"] for one in manifest.novelty.others
    }
    for drawing in (FIGURES, DECODED):
        with Image.open(bundle.path / drawing) as picture:
            assert "PNG" == picture.format
    assert {"Directions", "What poses draw", "Novelty", "Limits"} <= headings(bundle)
    assert {"Confidence", "Health", "What a pose explains"} <= headings(bundle)
    assert manifest.confidence is not None
    assert f"{HELD_OUT} held-out training images" == manifest.confidence.images
    assert manifest.explained is not None
    assert {"8", "16", "32", "64"} == manifest.explained.pca.keys()
    assert manifest.explained.pca["16"] > manifest.explained.pca["8"]
    assert manifest.explained.is_low  # the network is untrained
    card = (bundle.path / CARD).read_text()
    assert "This is less than PCA of the class explains with as many numbers." in card
    assert "| letters | 5 |" in card
    assert "99 %: all labels" in card
    assert "](figures.png)" in card
    assert "](decoded.png)" in card


def test_neighbours_are_the_training_images(bundle: Bundle, data_dir: Path) -> None:
    """The poses are of their own class, and not of held-out images. The toys have no licence."""
    weights = bundle.manifest.sha256
    manifest = analyse(bundle, data_dir).manifest
    assert manifest.neighbours
    gallery = manifest.neighbours.gallery
    assert gallery
    assert (0, TRAINING - HELD_OUT) == (len(gallery.sheet), len(gallery.poses))
    assert "has their poses alone" in (bundle.path / CARD).read_text()
    training = training_data_of(bundle, data_dir).training
    poses = Runtime(bundle, device="cpu").encode(scale(training.images)).poses
    own = poses[np.arange(len(poses)), training.labels]
    for pose in gallery.poses:
        assert min(np.abs(np.array(one) - pose).max() for one in own) < 1e-3
    own = gallery.poses[gallery.labels == 0].astype(np.float64) @ gallery.whitening[0]
    nearest = [np.sort(np.linalg.norm(own - pose, axis=1))[1] for pose in own]
    assert gallery.typical[0] == pytest.approx(np.median(nearest), rel=1e-3)
    assert {name: manifest.sha256[name] for name in manifest.graphs.values()} == {
        name: weights[name] for name in manifest.graphs.values()
    }
    assert manifest == analyse(Bundle.open(bundle.path), data_dir).manifest


def test_classes_get_equal_shares_of_neighbours() -> None:
    """Those that are answered wrongly only where others are missing."""
    labels = np.array([0] * 8 + [1] * 3)[:, None]
    right = np.array([False, True] * 4 + [True, False, False])
    chosen = choose(labels, right, classes=2, count=6)
    assert [1, 3, 5] == [row for row in chosen.tolist() if row < 8]
    assert [8, 9, 10] == [row for row in chosen.tolist() if row >= 8]


def test_a_family_is_asked_what_it_offers(family_bundles: Path, data_dir: Path) -> None:
    """A CNN has a calibration and nothing inside."""
    plain = say_training(family_bundles / "tiny-baseline", data_dir / "baseline")
    manifest = analyse(plain, data_dir).manifest
    assert manifest.confidence
    assert "log-presence" == manifest.confidence.input
    version = plain.manifest.version
    expected = replace(plain.manifest, confidence=manifest.confidence, analysed_version=version)
    assert expected == manifest


def test_a_network_that_saw_the_held_out_images_says_so(bundle_path: Path, data_dir: Path) -> None:
    """The rule was fitted on images that it was trained on."""
    final = say_training(bundle_path, data_dir / "final", runs=(replace(RUN, held_out=0),))
    manifest = analyse(final, data_dir).manifest
    assert manifest.novelty is not None
    assert manifest.novelty.images.endswith("that the network was trained on")
    assert "more than 5 % of them are novel" in (final.path / CARD).read_text()
    assert not any("auc" in one for one in manifest.novelty.others)
    assert manifest.confidence is None


def test_the_poses_of_known_images_lie_in_the_bundle(bundle: Bundle, data_dir: Path) -> None:
    """The bundle that is opened measures the same distances as the one that was fitted."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (200, 1, 28, 28), np.uint8)
    # 16 copies of each: some in both halves, so that none lies further away than all others.
    runtime = Runtime(bundle)
    answers = answer_images(
        runtime, Examples(np.tile(images, (16, 1, 1, 1)), np.zeros(3200, np.int64))
    )
    fitted = measure_novelty(runtime, answers, data_dir)
    write_findings(bundle, novelty=fitted)
    opened = Bundle.open(bundle.path).manifest.novelty
    assert fitted is not None
    assert opened is not None
    assert fitted == opened
    assert fitted.gaussians is not None
    assert opened.gaussians is not None
    assert np.array_equal(fitted.gaussians.whitening, opened.gaussians.whitening)
    assert np.array_equal(fitted.gaussians.means, opened.gaussians.means)
