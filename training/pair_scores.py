"""Score a network for pairs of digits, and choose the threshold of its masks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.pairs import INK, find_masks
from model.preprocess import Floats, scale
from model.runtime import Runtime
from model.views.segment import candidates, find_present
from training.answers import (
    BATCH,
    Answers,
    answer_images,
    as_floats,
    decode_classes,
    encode,
    is_missed,
)
from training.data.datasets import Examples
from training.data.pairs import (
    TEST_DIGESTS,
    TEST_PAIRS,
    TEST_SEED,
    VALIDATION_SEED,
    draw_pairs,
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
    answered = []
    for shift_px in reaches:
        answers = answer_images(runtime, make(digits, size=manifest.height, shift_px=shift_px))
        drawn = len(answers.labels)
        most = max(count, drawn) if is_test else drawn
        draws = draw_pairs(digits.labels, most, seed, shift_px=shift_px)
        missed = find_missed(runtime, digits, draws, shift_px=shift_px)
        wrong = np.asarray(missed.any(axis=1))
        shifts[f"{shift_px} px"] = {
            "pairs": len(draws),
            "errors": int(wrong.sum()),
            "error_percent": round(100 * float(wrong.mean()), 4),
            "interval_percent": [round(end, 4) for end in mean_interval(wrong, draws[:, :2])],
            "digit_error_percent": round(100 * float(missed.mean()), 4),
            "drawn_pairs": drawn,
            "drawn_errors": int(wrong[:drawn].sum()),
            **score_drawn(runtime, answers),
        }
        answered.append(answers)
    scores = next(iter(shifts.values()))
    protocol = (
        f"{scores['pairs']:,} fixed pairs of digits of {which}, for each shift, through this "
        "bundle; a pair is wrong unless the two most present classes are its two labels; the "
        f"interval is as if digits were drawn anew; {scores['drawn_pairs']:,} of the pairs are "
        "decoded, from the capsules of the true labels; a mask is where a digit gets "
        f"{manifest.mask_threshold:g} of the ink; one network, float32"
    )
    return {
        "images": scores["pairs"],
        "protocol": protocol,
        "errors": scores["errors"],
        "interval_percent": tuple(scores["interval_percent"]),
        "answers": answered[0],
        "shifts": shifts,
    }


def find_missed(
    runtime: Runtime, digits: Examples, draws: NDArray[np.int64], *, shift_px: int
) -> NDArray[np.bool_]:
    """Return which digits of pairs are not named, (M, 2); a few pairs are made at a time.

    Args:
        draws: (M, 6), as `draw_pairs` gives them.
    """
    size, parts = runtime.bundle.manifest.height, []
    for start in range(0, len(draws), BATCH):
        pairs = make_pairs(digits, draws[start : start + BATCH], size=size, shift_px=shift_px)
        parts.append(is_missed(encode(runtime, pairs.images).presence, pairs.labels))
    return np.concatenate(parts)


def score_drawn(runtime: Runtime, answers: Answers) -> dict[str, float]:
    """Score what a network draws of pairs. Digits are decoded from the capsules of the true labels.

    - squared_error: of a digit's reconstruction against the digit alone, summed over pixels;
    - mask_iou: intersection over union of a digit's mask and its true ink;
    - auto_pair_error_percent: pairs in which `count=auto` does not find just these two;
    - auto_single_error_percent: the same of the first digit alone.

    All are means over digits.
    """
    threshold = runtime.bundle.manifest.mask_threshold
    assert threshold is not None
    assert answers.object_images is not None
    decoded = decode_classes(runtime, answers.poses, answers.labels)[:, :, 0]
    alone = Examples(answers.object_images[:, :1], answers.labels[:, :1])
    values = {
        "squared_error": np.square(decoded - scale(answers.object_images)).sum(axis=(2, 3)),
        "mask_iou": _measure_masks(answers, decoded, threshold),
        "auto_pair_error_percent": 100 * ~_are_counted(runtime, answers),
        "auto_single_error_percent": 100 * ~_are_counted(runtime, answer_images(runtime, alone)),
    }
    return {name: round(float(value.mean(dtype=np.float64)), 4) for name, value in values.items()}


def choose_threshold(runtime: Runtime, answers: Answers) -> float:
    """The threshold that gives the best masks of these pairs."""
    decoded = decode_classes(runtime, answers.poses, answers.labels)[:, :, 0]
    return max(
        THRESHOLDS, key=lambda threshold: float(_measure_masks(answers, decoded, threshold).mean())
    )


def measure_overlap(masks: NDArray[np.bool_], object_images: Floats) -> NDArray[np.float64]:
    """Compute the intersection over union of masks and the ink of images (..., H, W): (...)."""
    true = object_images >= INK
    shared, either = ((masks & true).sum(axis=(-2, -1)), (masks | true).sum(axis=(-2, -1)))
    return np.asarray(shared / np.maximum(either, 1))


def _measure_masks(answers: Answers, decoded: Floats, threshold: float) -> NDArray[np.float64]:
    assert answers.object_images is not None
    masks = find_masks(as_floats(answers.images)[:, 0], decoded, threshold=threshold)
    return measure_overlap(masks, scale(answers.object_images))


def _are_counted(runtime: Runtime, answers: Answers) -> NDArray[np.bool_]:
    """Return whether `count=auto` finds just the labels in each image, (N,)."""
    right = []
    images = as_floats(answers.images)[:, 0]
    columns = images, answers.labels, answers.presence, answers.poses
    for image, labels, presence, poses in zip(*columns, strict=True):
        classes = candidates(presence, "auto")
        decoded = runtime.decode(poses[classes], classes)[:, 0] if len(classes) else image[None][:0]
        present = classes[find_present(image, presence[classes], decoded)]
        right.append(set(present.tolist()) == set(labels.tolist()))
    return np.array(right)
