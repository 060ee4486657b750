"""Calibrations: fitted on images that the network has not learnt, honest where they are few."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.bundle import CARD, Bundle
from model.bundle.confidence import Confidence
from model.preprocess import Floats
from model.runtime import Runtime
from tests.training.published import RUN, TEST, say_training
from training.analysis.bundle import measure_confidence, write_findings
from training.answers import Answers, answer_images
from training.confidence import (
    MIN_OBJECTS,
    Labels,
    coverage_range,
    cross_validate,
    fit_confidence,
    measure_images,
)
from training.evaluate import evaluate, training_data_of
from training.provenance import reads_of

CLASSES = 5


def draw(count: int, *, seed: int, sharpness: float = 6.0) -> Answers:
    """Presence of a network whose softmax at a temperature of `sharpness` is the truth."""
    rng = np.random.default_rng(seed)
    presence = rng.random((count, CLASSES)).astype(np.float32)
    shares = np.exp(sharpness * presence)
    shares /= shares.sum(axis=1, keepdims=True)
    labels = (rng.random((count, 1)) > shares.cumsum(axis=1)).sum(axis=1).clip(0, 4)
    return answers_of(presence, labels)


def answers_of(presence: Floats, labels: Labels, objects: Labels | None = None) -> Answers:
    """Answers to images of no pixels."""
    nothing = np.empty((len(labels), 0), np.float32)
    return Answers(nothing, labels, objects, presence=presence, poses=nothing)


def known(count: int, *, seed: int) -> tuple[Floats, Labels]:
    answers = draw(count, seed=seed)
    return answers.presence, answers.labels


def fit(presence: Floats, labels: Labels, objects: Labels | None = None) -> Confidence:
    fitted = fit_confidence(answers_of(presence, labels, objects), kind="presence")
    assert fitted
    return fitted


@pytest.fixture
def held_out(bundle: Bundle, data_dir: Path) -> Answers:
    return answer_images(Runtime(bundle), training_data_of(bundle, data_dir).validation)


def test_probabilities_and_sets_hold_on_new_images() -> None:
    """The temperature is that of the truth; the coverage lies where 95 of 100 fits have it."""
    fitted, new = fit(*known(4000, seed=0)), draw(20_000, seed=1)
    assert fitted.temperature == pytest.approx(6, rel=0.1)
    scores = measure_images(fitted, new)
    assert scores["calibration_error"] < 0.02
    wrong = 100 * np.mean(new.first != new.labels)
    assert scores["error_percent"] == pytest.approx(wrong, abs=0.01)
    low, high = scores["calibration_error_interval"]
    assert low <= scores["calibration_error"] <= high + 0.02
    (count,) = fitted.counts
    for coverage, sets in scores["sets"].items():
        span = coverage_range(count, float(coverage))
        assert span
        assert span[0] - 0.004 <= sets["coverage"] <= span[1] + 0.004
        assert sets["coverage_interval"][0] <= sets["coverage"] <= sets["coverage_interval"][1]


def test_isotonic_regression_is_taken_where_no_temperature_fits() -> None:
    """The network is right in 60 % of the answers, however sure it is."""
    rng = np.random.default_rng(0)
    presence = rng.random((3000, CLASSES)).astype(np.float32)
    presence[:, 0] += rng.random(3000).astype(np.float32) * 9
    right = rng.random(3000) < 0.6
    labels = np.where(right, presence.argmax(axis=1), (presence.argmax(axis=1) + 1) % CLASSES)
    assert "isotonic" == fit(presence, labels).method
    scores = cross_validate(answers_of(presence, labels), kind="presence")
    assert scores["calibration_error"] < 0.05


def test_too_few_images_or_objects_are_no_calibration() -> None:
    """Many images of few objects are few."""
    assert fit_confidence(draw(1, seed=0), kind="presence") is None
    presence, labels = known(4000, seed=0)
    for objects, is_enough in ((MIN_OBJECTS, True), (MIN_OBJECTS - 1, False)):
        answered = answers_of(presence, labels, np.arange(4000) % objects)
        assert is_enough == (fit_confidence(answered, kind="presence") is not None)


def test_rare_classes_are_covered_too() -> None:
    """A class with a tenth of the images has its own threshold, of its own images."""
    presence, labels = known(20_000, seed=2)
    kept = (labels != 4) | (np.arange(len(labels)) % 10 == 0)
    fitted = fit(presence[kept], labels[kept])
    assert fitted.per_class
    expected = np.bincount(labels[kept]) / 2
    assert expected == pytest.approx(np.array(fitted.counts), abs=1)
    new, truth = known(20_000, seed=3)
    held = fitted.find_labels(new, 0.9)[np.arange(len(truth)), truth]
    assert held[truth == 4].mean() == pytest.approx(0.9, abs=0.05)


def test_a_network_of_all_images_is_calibrated_on_half_of_the_test_split(
    bundle_path: Path, data_dir: Path
) -> None:
    """The other half is measured; manifest, card and the record of reads say so."""
    final = say_training(bundle_path, data_dir / "b" / "final", runs=(replace(RUN, held_out=0),))
    evaluate(final, data_dir)
    manifest = Bundle.open(final.path).manifest
    assert manifest.confidence
    assert f"{TEST // 2} test images, drawn at random" == manifest.confidence.images
    assert TEST // 2 == manifest.metrics["confidence"][f"{TEST // 2} test images"]["images"]
    (read,) = reads_of(final.path.parent, [RUN])
    assert f"{TEST // 2} test images, drawn at random, calibrate confidence" in read.protocol
    text = (final.path / CARD).read_text()
    assert f"fitted on {TEST // 2} test images, drawn at random" in text
    assert f"| {TEST // 2} test images | {TEST // 2} |" in text


def test_test_images_are_scored_with_changed_and_novel_ones(
    bundle: Bundle, data_dir: Path, held_out: Answers
) -> None:
    """One read of the test split scores them all; a new calibration forgets the scores."""
    calibrated = {"confidence": measure_confidence(bundle, held_out)}
    evaluate(write_findings(bundle, **calibrated), data_dir)
    opened = Bundle.open(bundle.path)
    kinds = opened.manifest.metrics["confidence"]
    assert {"10 test images", "turned by 30°", "with noise of 0.2", "letters"} <= kinds.keys()
    assert "coverage" in kinds["turned by 30°"]["sets"]["0.95"]
    assert "coverage" not in kinds["letters"]["sets"]["0.95"]
    assert "| turned by 30° | 10 |" in (bundle.path / CARD).read_text()
    assert "confidence" not in write_findings(opened, **calibrated).manifest.metrics
