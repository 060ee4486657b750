"""Score a network for pairs of digits, and choose the threshold of its masks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from model.capsnet import Network
from model.outputs import Encoding
from model.pairs import INK, find_masks
from model.preprocess import Floats, scale
from model.runtime import Runtime
from model.views.segment import candidates, find_present
from training.answers import BATCH, WrongAnswers, decode_each, evaluating, find_wrong, is_missed
from training.data.datasets import Examples
from training.data.pairs import (
    TEST_DIGESTS,
    TEST_PAIRS,
    TEST_SEED,
    VALIDATION_SEED,
    PairDraw,
    PairSet,
    make_pairs,
    published_pairs,
    validation_pairs,
)
from training.recipes import recipe_of
from training.statistics import mean_interval

THRESHOLDS = [step / 50 for step in range(10, 26)]
"""The thresholds among which the best for masks is chosen, as shares of the ink."""


def score_pairs(
    runtime: Runtime, digits: Examples, split: str, which: str, count: int = TEST_PAIRS
) -> dict[str, Any]:
    """Classify `count` fixed pairs at each reported shift; decode and segment the first ones.

    Of test digits the first pairs are the published ones; of held-out digits all are those of the
    training's validation.

    Args:
        split: `test`, or `validation`.
        which: describes the digits.

    Returns:
        fields of `training.evaluate.Scores`.
    """
    manifest, is_test = runtime.bundle.manifest, split == "test"
    make, seed, reaches = validation_pairs, VALIDATION_SEED, [recipe_of(runtime.bundle).shift_px]
    if is_test:
        make, seed, reaches = published_pairs, TEST_SEED, list(TEST_DIGESTS)
    shifts: dict[str, dict[str, Any]] = {}
    shown = []
    for shift_px in reaches:
        drawn = make(digits, size=manifest.height, shift_px=shift_px)
        total = max(count, len(drawn.labels)) if is_test else len(drawn.labels)
        draws = PairDraw(digits.labels, shift_px=shift_px).draw(total, seed)
        missed = find_missed(runtime, digits, draws, shift_px=shift_px)
        scores, examples = score_shift(runtime, drawn)
        wrong = np.asarray(missed.any(axis=1))
        bounds = mean_interval(wrong, draws[:, :2])
        shifts[f"{shift_px} px"] = {
            "pairs": total,
            "errors": int(wrong.sum()),
            "error_percent": round(100 * float(wrong.mean()), 4),
            "interval_percent": [round(bound, 4) for bound in bounds],
            "digit_error_percent": round(100 * float(missed.mean()), 4),
            "drawn_pairs": len(drawn.labels),
            "drawn_errors": len(examples.images),
            **scores,
        }
        shown.append(examples)
    first = next(iter(shifts.values()))
    protocol = (
        f"{first['pairs']:,} fixed pairs of digits of {which}, for each shift, through this "
        "bundle; a pair is wrong unless the two most present classes are its two labels; the "
        f"interval is as if digits were drawn anew; {first['drawn_pairs']:,} of the pairs are "
        "decoded, from the capsules of the true labels; a mask is where a digit gets "
        f"{manifest.mask_threshold:g} of the ink; one network, float32"
    )
    return {
        "images": first["pairs"],
        "protocol": protocol,
        "errors": first["errors"],
        "interval_percent": tuple(first["interval_percent"]),
        "wrong": shown[0],
        "shifts": shifts,
    }


def find_missed(
    runtime: Runtime, digits: Examples, draws: NDArray[np.int64], *, shift_px: int
) -> NDArray[np.bool_]:
    """Return which digits (N, 2) of pairs are not named. Pairs are made a few at a time.

    Args:
        draws: (N, 6), as `PairDraw.draw` gives them.
    """
    size, parts = runtime.bundle.manifest.height, []
    for part in _slices(len(draws)):
        pairs = make_pairs(digits, draws[part], size=size, shift_px=shift_px)
        parts.append(is_missed(runtime.encode(scale(pairs.images)).presence, pairs.labels))
    return np.concatenate(parts)


def score_shift(runtime: Runtime, pairs: PairSet) -> tuple[dict[str, Any], WrongAnswers]:
    """Score pairs that are drawn. Digits are decoded from the capsules of the true labels.

    - squared_error: of a digit's reconstruction against the digit alone, summed over pixels;
    - mask_iou: intersection over union of a digit's mask and its true ink;
    - auto_pair_error_percent: pairs in which `count=auto` does not find just these two;
    - auto_single_error_percent: the same of the first digit alone.

    All are means over digits.
    """
    parts = [_measure(runtime, pairs.part(rows)) for rows in _slices(len(pairs.labels))]
    values = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    wrong = find_wrong(pairs, values.pop("presence"))
    means = {name: round(float(value.mean(dtype=np.float64)), 4) for name, value in values.items()}
    return means, wrong


def choose_threshold(network: Network, pairs: PairSet) -> float:
    """The threshold that gives the best masks of these pairs. On the CPU."""

    def decode(poses: Floats, classes: NDArray[np.int64]) -> Floats:
        return network.decode(torch.from_numpy(poses), torch.from_numpy(classes)).numpy()

    parts = []
    with evaluating(network), torch.inference_mode():
        for rows in _slices(len(pairs.labels)):
            poses = network(torch.from_numpy(scale(pairs.images[rows]))).poses.numpy()
            parts.append(decode_each(decode, poses, pairs.labels[rows]))
    decoded = np.concatenate(parts)
    images, object_images = scale(pairs.images)[:, 0], scale(pairs.object_images)
    overlaps = [
        measure_overlap(find_masks(images, decoded, threshold=threshold), object_images).mean()
        for threshold in THRESHOLDS
    ]
    return THRESHOLDS[int(np.argmax(overlaps))]


def measure_overlap(masks: NDArray[np.bool_], object_images: Floats) -> NDArray[np.float64]:
    """Compute the intersection over union of masks and the ink of images (..., H, W): (...)."""
    true = object_images >= INK
    shared, either = ((masks & true).sum(axis=(-2, -1)), (masks | true).sum(axis=(-2, -1)))
    return np.asarray(shared / np.maximum(either, 1))


def _measure(runtime: Runtime, pairs: PairSet) -> dict[str, NDArray[Any]]:
    """Scores of each of the digits (N, 2), and presence (N, K)."""
    threshold = runtime.bundle.manifest.mask_threshold
    assert threshold is not None
    images, object_images = scale(pairs.images), scale(pairs.object_images)
    encoding = runtime.encode(images)
    decoded = decode_each(runtime.decode, encoding.poses, pairs.labels)
    masks = find_masks(images[:, 0], decoded, threshold=threshold)
    singles, first = object_images[:, :1], pairs.labels[:, :1]
    alone = _are_counted(runtime, singles, runtime.encode(singles), first)
    return {
        "presence": encoding.presence,
        "squared_error": np.square(decoded - object_images).sum(axis=(2, 3)),
        "mask_iou": measure_overlap(masks, object_images),
        "auto_pair_error_percent": 100 * ~_are_counted(runtime, images, encoding, pairs.labels),
        "auto_single_error_percent": 100 * ~alone,
    }


def _are_counted(
    runtime: Runtime, images: Floats, encoding: Encoding[Floats], labels: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return whether `count=auto` finds just these classes (N, L) in images (N, 1, H, W): (N,)."""
    right = []
    for image, lengths, capsules, expected in zip(images, *encoding, labels, strict=True):
        classes = candidates(lengths, "auto")
        decoded = (
            runtime.decode(capsules[classes], classes)[:, 0] if len(classes) else images[:0, 0]
        )
        present = classes[find_present(image[0], lengths[classes], decoded)]
        right.append(set(present.tolist()) == set(expected.tolist()))
    return np.array(right)


def _slices(count: int) -> Iterator[slice]:
    return (slice(start, start + BATCH) for start in range(0, count, BATCH))
