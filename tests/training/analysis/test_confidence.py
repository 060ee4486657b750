"""Calibrations: fitted on images that the network has not seen, honest where they are few."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.bundle import CARD, Bundle
from model.bundle.confidence import COVERAGES
from model.preprocess import Floats
from tests.training.published import HELD_OUT, RUN, say_training
from training.analysis.bundle import analyse_confidence
from training.analysis.confidence import Answered, Labels, find_thresholds, fit, fit_confidence
from training.card import coverage_range, write_card
from training.data.datasets import DatasetError, Examples
from training.evaluate import evaluate, validation_examples
from training.reliability import calibration_error, find_risk, measure_images

CLASSES = 5


def draw(count: int, *, seed: int, sharpness: float = 6.0) -> tuple[Floats, Labels]:
    """Presence of a network whose softmax at a temperature of `sharpness` is the truth."""
    rng = np.random.default_rng(seed)
    presence = rng.random((count, CLASSES)).astype(np.float32)
    shares = np.exp(sharpness * presence)
    shares /= shares.sum(axis=1, keepdims=True)
    return presence, (rng.random((count, 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(0, 4)


@pytest.fixture
def examples(bundle: Bundle, data_dir: Path) -> Examples:
    return validation_examples(bundle, data_dir)


def test_the_temperature_of_the_truth_is_found() -> None:
    """The probabilities are those of new images, and isotonic regression adds nothing."""
    fitted = fit_confidence(Answered(*draw(4000, seed=0), "drawn"), kind="presence")
    assert fitted
    assert fitted.temperature == pytest.approx(6, rel=0.1)
    scores = measure_images(fitted, *draw(20_000, seed=1))
    assert scores["calibration_error"] < 0.02
    low, high = scores["calibration_error_interval"]
    assert low <= scores["calibration_error"] <= high + 0.02


@pytest.mark.parametrize("coverage", ["0.9", "0.95", "0.99"])
def test_sets_have_the_coverage_that_was_asked_for(coverage: str) -> None:
    """On new images, within what so many images can promise."""
    fitted = fit_confidence(Answered(*draw(4000, seed=0), "drawn"), kind="presence")
    assert fitted
    scores = measure_images(fitted, *draw(20_000, seed=1))["sets"][coverage]
    span = coverage_range(4000, float(coverage))
    assert span
    assert span[0] - 0.004 <= scores["coverage"] <= span[1] + 0.004
    assert scores["coverage_interval"][0] <= scores["coverage"] <= scores["coverage_interval"][1]


def test_isotonic_regression_is_taken_where_no_temperature_fits() -> None:
    """The network is right in 60 % of the answers, however sure it is."""
    rng = np.random.default_rng(0)
    presence = rng.random((3000, CLASSES)).astype(np.float32)
    presence[:, 0] += rng.random(3000).astype(np.float32) * 9
    right = rng.random(3000) < 0.6
    labels = np.where(right, presence.argmax(axis=1), (presence.argmax(axis=1) + 1) % CLASSES)
    fitted = fit_confidence(Answered(presence, labels, "drawn"), kind="presence")
    assert fitted
    assert "isotonic" == fitted.method
    assert fitted.cross_validated["calibration_error"] < 0.05


def test_few_right_answers_are_not_certain() -> None:
    """Eight of eight: about (8 + 1) / (8 + 2), and the set of 90 % has all labels."""
    labels = np.arange(8) % 2
    presence = np.eye(CLASSES, dtype=np.float32)[labels]
    fitted = fit_confidence(Answered(presence, labels, "drawn"), kind="presence")
    assert fitted
    assert "temperature" == fitted.method
    assert fitted.find_probability(presence) == pytest.approx(0.9, abs=0.01)
    assert fitted.find_labels(presence, 0.9).all()
    assert coverage_range(8, 0.9) is None


def test_images_that_are_all_right_leave_faint_ones_unsure() -> None:
    """A network that made no error there still says less of an image that it hardly finds."""
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 5, 2_000)
    presence = generator.uniform(0, 0.1, (2_000, 5)).astype(np.float32)
    presence[np.arange(2_000), labels] = generator.uniform(0.8, 1, 2_000)
    fitted = fit_confidence(Answered(presence, labels, "of a test"), kind="presence")
    assert fitted
    faint = np.array([[0.2, 0.15, 0.1, 0.1, 0.1]], np.float32)
    assert fitted.find_probability(faint) < 0.7
    assert fitted.find_probability(presence).mean() > 0.99


def test_one_image_is_no_calibration() -> None:
    """Nor is none."""
    presence, labels = draw(1, seed=0)
    assert fit_confidence(Answered(presence, labels, "drawn"), kind="presence") is None


def test_thresholds_are_order_statistics() -> None:
    """Of 99 scores the 90th highest is for 90 %; 99.5 % cannot be promised."""
    found = dict(zip(COVERAGES, find_thresholds(np.arange(1, 100) / 100), strict=True))
    assert (0.1, 0.01, 0.0) == (found[0.9], found[0.99], found[0.995])


def test_rare_classes_are_covered_too() -> None:
    """A class with a tenth of the images has its own threshold, and its coverage."""
    presence, labels = draw(20_000, seed=2)
    kept = (labels != 4) | (np.arange(len(labels)) % 10 == 0)
    fitted = fit(presence[kept], labels[kept], method="temperature", kind="presence")
    assert fitted.per_class
    new, truth = draw(20_000, seed=3)
    held = fitted.find_labels(new, 0.9)[np.arange(len(truth)), truth]
    assert held[truth == 4].mean() == pytest.approx(0.9, abs=0.04)


def test_risk_rises_with_the_share() -> None:
    """The three least probable of ten are wrong."""
    right = np.arange(10) < 7
    risk = find_risk(np.linspace(1, 0.1, 10), right)
    assert 0 == risk[0]
    assert 0.3 == pytest.approx(risk[-1])
    assert 0.3 == pytest.approx(calibration_error(np.ones(10), right))


def test_a_bundle_is_calibrated_on_images_that_it_left_out(
    bundle: Bundle, examples: Examples
) -> None:
    """Manifest and card say so; the bundle that is opened has the same calibration."""
    analysed = analyse_confidence(bundle, examples)
    write_card(analysed)
    confidence = Bundle.open(bundle.path).manifest.confidence
    assert confidence
    assert analysed.manifest.confidence == confidence
    assert HELD_OUT == confidence.count
    assert confidence.images.endswith("which the network was not trained on")
    text = (bundle.path / CARD).read_text()
    assert "## Confidence" in text
    assert "![reliability, risk and sizes of sets](confidence.png)" in text
    assert "99 %: all labels" in text


def test_weights_that_the_images_chose_are_named(bundle_path: Path, data_dir: Path) -> None:
    """The coverage on new images is then lower."""
    chosen = say_training(bundle_path, data_dir / "chosen", runs=(replace(RUN, kept_step=7),))
    analysed = analyse_confidence(chosen, validation_examples(chosen, data_dir))
    assert analysed.manifest.confidence
    assert "also chose the weights of step 7" in analysed.manifest.confidence.images


def test_a_network_of_all_images_needs_a_twin(
    bundle: Bundle, bundle_path: Path, data_dir: Path, examples: Examples
) -> None:
    """Without one it has no calibration, and the card says what gives one."""
    final = say_training(bundle_path, data_dir / "final", runs=(replace(RUN, held_out=0),))
    assert final == analyse_confidence(final, examples)
    twin = analyse_confidence(final, examples, twin=bundle.path).manifest.confidence
    assert twin
    assert "answered by a twin of the same recipe, seed 1, that was not trained" in twin.images
    with pytest.raises(DatasetError, match="was trained on all images"):
        analyse_confidence(final, examples, twin=final.path)


def test_a_twin_has_the_same_network(
    bundle: Bundle, family_bundles: Path, data_dir: Path, examples: Examples
) -> None:
    """Another epoch count is named; another network is refused."""
    other = say_training(family_bundles / "tiny-attention", data_dir / "other")
    with pytest.raises(DatasetError, match="another network than mnist"):
        analyse_confidence(bundle, examples, twin=other.path)
    shorter = say_training(bundle.path, data_dir / "shorter", epochs=3.0)
    confidence = analyse_confidence(bundle, examples, twin=shorter.path).manifest.confidence
    assert confidence
    assert "(epochs 3.0, not " in confidence.images


def test_a_twin_may_draw_in_another_way(bundle: Bundle, data_dir: Path, examples: Examples) -> None:
    """The decoder takes no part in the answer."""
    network = bundle.manifest.training["recipe"]["network"] | {"decoder_hidden": [8, 9]}
    other = say_training(bundle.path, data_dir / "drawn", network=network)
    confidence = analyse_confidence(other, examples, twin=bundle.path).manifest.confidence
    assert confidence
    assert "of the same recipe, seed 1" in confidence.images


def test_test_images_are_scored_with_changed_and_novel_ones(
    bundle: Bundle, data_dir: Path, examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read of the test split scores them all; a new calibration forgets the scores."""
    monkeypatch.setattr("training.novelty.COUNT", 5)
    analysed = analyse_confidence(bundle, examples)
    evaluate(analysed, data_dir)
    opened = Bundle.open(bundle.path)
    kinds = opened.manifest.metrics["confidence"]
    assert {"test images", "turned by 30°", "with noise of 0.2", "letters"} <= kinds.keys()
    assert "coverage" in kinds["turned by 30°"]["sets"]["0.95"]
    assert "coverage" not in kinds["letters"]["sets"]["0.95"]
    assert "| turned by 30° | 10 |" in (bundle.path / CARD).read_text()
    assert "confidence" not in analyse_confidence(opened, examples).manifest.metrics
