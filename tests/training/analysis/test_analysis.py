from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from model.bundle import CARD, Bundle, write_manifest
from model.capsnet import Network
from model.runtime import Runtime
from tests.training.published import HELD_OUT, RUN, say_training
from training.analysis.bundle import (
    ITERATIONS,
    analyse,
    analyse_directions,
    analyse_novelty,
    measure_changes,
    novelty,
)
from training.card import ROC, ROUTING, SWEEP, write_card
from training.data.datasets import DATASETS, Examples
from training.evaluate import validation_examples
from training.pair_scores import THRESHOLDS
from training.recipes import recipe_of
from training.training_data import TrainingData

IMAGES = np.random.default_rng(0).random((10, 1, 28, 28), np.float32)


@pytest.fixture
def data_dir(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the toys, and few images of other kinds."""
    monkeypatch.setattr("training.kinds.COUNT", 5)
    monkeypatch.setattr(novelty, "MIN_IMAGES", HELD_OUT)
    return data_dir


@pytest.fixture
def examples(bundle: Bundle, data_dir: Path) -> Examples:
    return validation_examples(bundle, data_dir)


def headings(bundle: Bundle) -> set[str]:
    text = (bundle.path / CARD).read_text()
    return {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")}


def test_an_analysed_bundle_tells_what_was_found(
    bundle: Bundle, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and rule are in the manifest that is read back, and all of it is in the card."""
    monkeypatch.setattr("training.analysis.directions.LEAST", 20)
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
    for drawing in (ROUTING, SWEEP, ROC):
        with Image.open(bundle.path / drawing) as picture:
            assert "PNG" == picture.format
    assert {"Directions", "Sweeps", "Routing", "Novelty", "Limits"} <= headings(bundle)
    assert {"Confidence", "Health", "What a pose explains"} <= headings(bundle)
    assert "| letters | 5 |" in (bundle.path / CARD).read_text()


def test_a_family_is_asked_what_it_offers(family_bundles: Path, data_dir: Path) -> None:
    """A CNN has a calibration and nothing inside; self-attention has poses and no iterations."""
    plain = say_training(family_bundles / "tiny-baseline", data_dir / "baseline")
    manifest = analyse(plain, data_dir).manifest
    assert manifest.confidence
    assert "log-presence" == manifest.confidence.input
    version = plain.manifest.version
    expected = replace(plain.manifest, confidence=manifest.confidence, analysed_version=version)
    assert expected == manifest
    attention = analyse(say_training(family_bundles / "tiny-attention", data_dir / "a"), data_dir)
    assert {"Sweeps", "Novelty"} <= headings(attention)
    assert "Routing" not in headings(attention)


def test_pairs_have_no_novelty_rule(
    strokes_bundle_path: Path, data_dir: Path, strokes: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They see more than single digits; those stand in the middle of their larger images."""
    monkeypatch.setattr("training.analysis.bundle.validation_examples", lambda *_, **__: strokes)
    bundle = say_training(strokes_bundle_path, data_dir / "strokes")
    data = TrainingData(recipe_of(bundle), DATASETS["toys"], strokes, strokes)
    monkeypatch.setattr("training.analysis.bundle.training_data_of", lambda *_, **__: data)
    bundle = Bundle(bundle.path, replace(bundle.manifest, mask_threshold=0.9))
    analysed = analyse(bundle, data_dir)
    assert analysed.manifest.novelty is None
    assert analysed.manifest.mask_threshold in THRESHOLDS
    assert {"Sweeps", "Routing", "Neighbours"} <= headings(analysed)
    assert analysed.manifest.neighbours
    assert analysed.manifest.neighbours.gallery
    assert {0, 1, 2} == set(analysed.manifest.neighbours.gallery.labels.tolist())


def test_findings_in_other_weights_are_forgotten(
    bundle: Bundle, examples: Examples, data_dir: Path
) -> None:
    """Names measured on a network that was replaced do not outlive a new measurement."""
    fitted = analyse_novelty(bundle, examples, data_dir)
    assert fitted.manifest.version == fitted.manifest.analysed_version
    assert (
        analyse_directions(fitted, examples, examples).manifest.novelty == fitted.manifest.novelty
    )
    write_manifest(fitted.path, replace(fitted.manifest, analysed_version="another"))
    assert analyse_directions(fitted, examples, examples).manifest.novelty is None


def test_a_network_that_saw_the_held_out_images_says_so(
    bundle_path: Path, data_dir: Path, examples: Examples
) -> None:
    """The rule was fitted on images that it was trained on."""
    final = say_training(bundle_path, data_dir / "final", runs=(replace(RUN, held_out=0),))
    analysed = analyse_novelty(final, examples, data_dir)
    write_card(analysed)
    assert analysed.manifest.novelty is not None
    assert analysed.manifest.novelty.images.endswith("that the network was trained on")
    assert "more than 5 % of them are novel" in (final.path / CARD).read_text()
    assert not any("auc" in one for one in analysed.manifest.novelty.others)
    assert not (final.path / ROC).exists()


def test_the_poses_of_known_images_lie_in_the_bundle(bundle: Bundle, data_dir: Path) -> None:
    """The bundle that is opened measures the same distances as the one that was fitted."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (200, 1, 28, 28), np.uint8)
    # 16 copies of each: some in both halves, so that none lies further away than all others.
    examples = Examples(np.tile(images, (16, 1, 1, 1)), np.zeros(3200, np.int64))
    fitted = analyse_novelty(bundle, examples, data_dir).manifest.novelty
    opened = Bundle.open(bundle.path).manifest.novelty
    assert fitted is not None
    assert fitted == opened
    assert fitted.gaussians is not None
    assert opened is not None
    assert opened.gaussians is not None
    assert np.array_equal(fitted.gaussians.whitening, opened.gaussians.whitening)
    assert np.array_equal(fitted.gaussians.means, opened.gaussians.means)


def test_a_network_is_routed_for_longer_than_it_was_trained(
    network: Network, runtime: Runtime
) -> None:
    """Nine iterations of a network of three; the first two are in its bundle's graph."""
    found = measure_changes(network, IMAGES)
    logits = runtime.trace(IMAGES).classes.logits
    expected = np.abs(np.diff(logits, axis=1)).mean(axis=(0, 2, 3))
    assert [(ITERATIONS,)] * 2 == [values.shape for values in found.values()]
    assert expected.tolist() == pytest.approx(found["logit"][:2].tolist(), rel=0.01)
