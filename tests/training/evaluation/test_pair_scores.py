from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from model.bundle import Bundle
from model.capsnet import CapsNet
from model.preprocess import Floats, scale
from model.runtime import Encoding, Runtime
from model.segmentation import find_masks
from training.data.pairs import PairSet
from training.evaluation.answers import draw_classes
from training.evaluation.pair_scores import (
    PairScores,
    ShiftScores,
    choose_threshold,
    draw,
    measure_overlap,
    pick_absent,
    score_pairs,
)
from training.evaluation.wrong_answers import WrongAnswers

SCORES = ShiftScores(
    pairs=200,
    errors=13,
    error_percent=6.5,
    digit_error_percent=3.25,
    squared_error=12.34,
    mask_iou=0.8,
    true_ink=100,
    present_ink=98,
    absent_ink=11,
)
NONE_WRONG = WrongAnswers(
    np.zeros((0, 36, 36), np.uint8),
    np.zeros((0, 2), np.int64),
    np.zeros((0, 2), np.int64),
    np.zeros((0, 2), np.float32),
)


@pytest.fixture(scope="module")
def noise() -> PairSet:
    """Five pairs of noise in the size of the untrained bundle."""
    rng = np.random.default_rng(0)
    layers = rng.integers(0, 120, (5, 2, 28, 28), dtype=np.uint8)
    labels = np.array([[0, 1], [9, 0], [3, 7], [2, 5], [8, 4]], np.uint8)
    return PairSet(layers.sum(axis=1, dtype=np.uint8), layers, labels)


def encoding(*lengths: list[float]) -> Encoding:
    """Lengths, and poses of no interest."""
    return Encoding(np.array(lengths, np.float32), np.zeros((len(lengths), 4, 2), np.float32))


def test_absent_classes_are_neither_there_nor_named() -> None:
    """The next class after the first label is taken, skipping labels and the two longest."""
    said = encoding([0.9, 0.8, 0.1, 0.1], [0.1, 0.9, 0.1, 0.8], [0.9, 0.1, 0.2, 0.8])
    labels = np.array([[0, 1], [0, 1], [3, 0]], np.uint8)
    assert [2, 2, 1] == pick_absent(said, labels).tolist()


@pytest.mark.parametrize(
    ("mask", "expected"),
    [([1, 1, 0, 0], 1.0), ([1, 0, 0, 0], 0.5), ([0, 1, 1, 0], 1 / 3), ([0, 0, 1, 1], 0.0)],
)
def test_overlap_of_a_mask_with_the_true_ink(mask: list[int], expected: float) -> None:
    """Shared pixels among all pixels of either; faint pixels are no ink."""
    layer = np.array([[[0.1, 1.0, 0.09, 0.0]]], np.float32)
    assert pytest.approx(expected) == measure_overlap(np.array([[mask]], bool), layer).item()


def test_scores_are_means_over_pairs_and_digits(
    bundle_path: Path, runtime: Runtime, noise: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted pair by pair, in batches that do not divide the set."""
    monkeypatch.setattr("training.evaluation.pair_scores.BATCH", 2)
    scores, wrong = score_pairs(
        Runtime(Bundle.open(bundle_path), device="cpu"), noise, mask_threshold=0.5
    )
    images, layers = scale(noise.images), scale(noise.layers)[:, 0]
    answers = runtime.encode(images)
    errors, missed, squared, overlaps = 0, 0, [], []
    for n, labels in enumerate(noise.labels):
        named = set(np.argsort(answers.lengths[n])[-2:].tolist())
        errors += named != set(labels.tolist())
        missed += len(set(labels.tolist()) - named)
        for place, label in enumerate(labels):
            (drawn,) = runtime.decode(answers.poses[n, label][None], np.array([label], np.int64))
            squared.append(float(np.square(drawn[0] - layers[n, place]).sum()))
            mask = find_masks(images[n, 0], drawn, threshold=0.5)[0]
            overlaps.append(float(measure_overlap(mask, layers[n, place])))
    assert (5, errors, 100 * missed / 10) == (
        scores.pairs,
        scores.errors,
        pytest.approx(scores.digit_error_percent),
    )
    assert pytest.approx(np.mean(squared), rel=1e-4) == scores.squared_error
    assert pytest.approx(np.mean(overlaps), rel=1e-4) == scores.mask_iou
    assert pytest.approx(layers.sum() / 10, rel=1e-5) == scores.true_ink
    assert errors == len(wrong.images)


def test_a_class_is_drawn_as_by_the_network(
    network: CapsNet, runtime: Runtime, noise: PairSet
) -> None:
    """Decoding through the bundle and through torch gives the same pictures, in order."""
    drawn: Floats = draw(runtime, runtime.encode(scale(noise.images)), noise.labels)
    with torch.inference_mode():
        expected = draw_classes(network, noise.images, noise.labels)
    np.testing.assert_allclose(expected, drawn, atol=1e-4)


def test_the_threshold_with_the_best_masks_is_chosen(
    network: CapsNet, noise: PairSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder that draws digits at a quarter of their brightness needs a low threshold."""
    layers = np.where(noise.layers > 60, 255, 0).astype(np.uint8)
    bright = PairSet(layers.max(axis=1), layers, noise.labels)
    monkeypatch.setattr(
        "training.evaluation.pair_scores.draw_classes",
        lambda *_: layers.astype(np.float32) / 255 * 0.12,
    )
    assert 0.12 >= choose_threshold(network, bright)


def test_metrics_put_the_papers_measure_in_front() -> None:
    """The error that `/models` shows is that of the paper's shift; the protocol says how."""
    metrics = PairScores({4: SCORES, 6: SCORES}, 0.4, NONE_WRONG).metrics()
    assert (6.5, 13, 200) == tuple(
        metrics[f"test_{key}"] for key in ("error_percent", "errors", "images")
    )
    assert "masks cut at 0.4" in metrics["protocol"]
    assert 0.8 == metrics["shifts"]["6 px"]["mask_iou"]


def test_the_papers_rows_stand_above_ours() -> None:
    """5.2 % and 8.1 %, then both shifts."""
    table = PairScores({4: SCORES, 6: SCORES}, 0.4, NONE_WRONG).table(())
    assert ["8.1", "5.2", "6.50", "6.50"] == list(table.columns[1].cells)
