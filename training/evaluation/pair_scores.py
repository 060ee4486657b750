"""Scores on pairs of overlapping digits: naming them, drawing them, and telling them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from model.capsnet import CapsNet
from model.preprocess import Floats, scale
from model.runtime import Encoding, Runtime
from model.segmentation import INK, find_masks
from training.data.pairs import PairSet
from training.evaluation.answers import draw_classes, is_missed, is_wrong, longest
from training.evaluation.digit_scores import BATCH
from training.evaluation.wrong_answers import WrongAnswers, find_wrong
from training.paper import MULTIMNIST, MULTIMNIST_BASELINE, MULTIMNIST_SHIFT_PX

THRESHOLDS = [step / 20 for step in range(1, 20)]


@dataclass(frozen=True)
class ShiftScores:
    """Scores on one set of pairs. Digits are drawn by the capsules of the true labels."""

    pairs: int
    errors: int
    """Pairs whose two longest capsules are not the two labels': the paper's measure."""
    error_percent: float
    digit_error_percent: float
    """Digits, of a hundred, that were not named."""
    squared_error: float
    """Of a digit's reconstruction against the digit alone, summed over pixels; the mean."""
    mask_iou: float
    """Intersection over union of a digit's mask and its true ink; the mean."""
    true_ink: float
    """Mean sum of a digit's pixels."""
    present_ink: float
    """The same of its reconstruction."""
    absent_ink: float
    """The same where a class is decoded that is neither there nor among the two longest."""


@dataclass(frozen=True)
class PairScores:
    """Scores on pairs, by the largest shift of their digits."""

    shifts: Mapping[int, ShiftScores]
    mask_threshold: float
    wrong: WrongAnswers
    """At the paper's shift."""

    def metrics(self) -> dict[str, Any]:
        """The paper's measure at the paper's shift, and everything for each shift."""
        first = self.shifts[MULTIMNIST_SHIFT_PX]
        return {
            "test_error_percent": round(first.error_percent, 4),
            "test_errors": first.errors,
            "test_images": first.pairs,
            "shifts": {
                f"{shift_px} px": {name: round(value, 4) for name, value in asdict(scores).items()}
                for shift_px, scores in self.shifts.items()
            },
            "protocol": f"{first.pairs:,} fixed pairs of digits of the published test split for "
            "each shift, through this bundle; a pair is wrong unless the two longest "
            "capsules are its two labels; digits are drawn by the capsules of the true labels, "
            f"masks cut at {self.mask_threshold:g}; one network, float32",
        }

    def headline(self) -> str:
        """Wrong pairs at the paper's shift, and the paper's."""
        first = self.shifts[MULTIMNIST_SHIFT_PX]
        return (
            f"{first.errors} of {first.pairs} pairs wrong, {first.error_percent:.2f} % error "
            f"(paper: {MULTIMNIST[3, 'paper']} %)"
        )

    def table(self, _class_names: Sequence[str]) -> Table:
        """Our rows below the paper's."""
        table = Table(
            "MultiMNIST",
            "pairs wrong, %",
            "digits missed, %",
            "squared error a digit",
            "mask IoU",
            "ink: true, drawn, absent",
        )
        table.add_row("paper, baseline CNN", str(MULTIMNIST_BASELINE))
        table.add_row("paper, CapsNet", str(MULTIMNIST[3, "paper"]))
        for shift_px, scores in self.shifts.items():
            table.add_row(
                f"this bundle, shift {shift_px} px",
                f"{scores.error_percent:.2f}",
                f"{scores.digit_error_percent:.2f}",
                f"{scores.squared_error:.1f}",
                f"{scores.mask_iou:.3f}",
                f"{scores.true_ink:.0f}, {scores.present_ink:.0f}, {scores.absent_ink:.0f}",
            )
        return table


def score_pairs(
    runtime: Runtime, pairs: PairSet, *, mask_threshold: float
) -> tuple[ShiftScores, WrongAnswers]:
    """Name and draw every pair once."""
    parts = [
        _measure(
            runtime,
            PairSet(*(array[start : start + BATCH] for array in pairs)),
            mask_threshold=mask_threshold,
        )
        for start in range(0, len(pairs.labels), BATCH)
    ]
    values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    means = {name: float(value.mean(dtype=np.float64)) for name, value in values.items()}
    scores = ShiftScores(
        pairs=len(pairs.labels),
        errors=int(values["wrong"].sum()),
        error_percent=100 * means["wrong"],
        digit_error_percent=100 * means["missed"],
        squared_error=means["squared_error"],
        mask_iou=means["mask_iou"],
        true_ink=means["true_ink"],
        present_ink=means["present_ink"],
        absent_ink=means["absent_ink"],
    )
    return scores, find_wrong(pairs, values["lengths"])


def choose_threshold(network: CapsNet, pairs: PairSet) -> float:
    """The threshold of reconstructions that gives the best masks of these pairs."""
    drawn = draw_classes(network, pairs.images, pairs.labels)
    images, layers = scale(pairs.images)[:, 0], scale(pairs.layers)[:, 0]
    overlaps = {
        threshold: measure_overlap(find_masks(images, drawn, threshold=threshold), layers).mean()
        for threshold in THRESHOLDS
    }
    return max(THRESHOLDS, key=lambda threshold: float(overlaps[threshold]))


def pick_absent(encoding: Encoding, labels: NDArray[np.integer]) -> NDArray[np.int64]:
    """For each pair the next class after its first label that is neither there nor named."""
    classes = encoding.lengths.shape[1]
    candidates = (labels[:, :1].astype(np.int64) + np.arange(1, classes)) % classes  # (N, K - 1)
    taken = np.concatenate((labels, longest(encoding.lengths, 2)), axis=1)
    free = (candidates[:, :, None] != taken[:, None, :]).all(axis=2)
    return np.asarray(candidates[np.arange(len(labels)), free.argmax(axis=1)])


def measure_overlap(masks: NDArray[np.bool_], layers: Floats) -> NDArray[np.float64]:
    """Intersection over union of masks (..., H, W) and the ink of layers (..., H, W): (...)."""
    true = layers >= INK
    shared, either = ((masks & true).sum(axis=(-2, -1)), (masks | true).sum(axis=(-2, -1)))
    return np.asarray(shared / np.maximum(either, 1))


def draw(runtime: Runtime, encoding: Encoding, classes: NDArray[np.integer]) -> Floats:
    """Decode C classes (N, C) of each of N images, each alone: (N, C, H, W)."""
    chosen = classes.astype(np.int64)
    poses = np.take_along_axis(encoding.poses, chosen[:, :, None], axis=1)
    images = runtime.decode(poses.reshape(-1, poses.shape[-1]), chosen.ravel())
    return images.reshape(*classes.shape, *images.shape[2:])


def _measure(runtime: Runtime, pairs: PairSet, *, mask_threshold: float) -> dict[str, NDArray[Any]]:
    """Scores of each pair (N,) or of each of its digits (N, 2), and the lengths (N, K)."""
    images, layers = scale(pairs.images), scale(pairs.layers)[:, 0]
    encoding = runtime.encode(images)
    drawn = draw(runtime, encoding, pairs.labels)
    absent = draw(runtime, encoding, pick_absent(encoding, pairs.labels)[:, None])
    masks = find_masks(images[:, 0], drawn, threshold=mask_threshold)
    return {
        "lengths": encoding.lengths,
        "wrong": is_wrong(encoding.lengths, pairs.labels),
        "missed": is_missed(encoding.lengths, pairs.labels),
        "squared_error": np.square(drawn - layers).sum(axis=(2, 3)),
        "mask_iou": measure_overlap(masks, layers),
        "true_ink": layers.sum(axis=(2, 3)),
        "present_ink": drawn.sum(axis=(2, 3)),
        "absent_ink": absent.sum(axis=(1, 2, 3)),
    }
