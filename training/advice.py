"""What to do next with a network of one's own pictures, from its answers to unseen images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from model.preprocess import Floats
from training.answers import Labels, most_confused, recalls

BARELY_LEARNT = 0.8
"""Errors, as a share of those of a constant answer, from which a network has barely learnt."""
FEW, ENOUGH = 100, 500
"""Below so many training pictures of a class they are few; from so many on, details are learnt."""
READY = 0.02
"""Up to this share of wrong answers, on enough images, a network is ready to be used."""
FEW_SCORED = 100
"""An error on fewer images has a wide interval."""


def advise(
    labels: Labels,
    presence: Floats,
    class_names: Sequence[str],
    *,
    pictures: Mapping[str, int],
    size_px: int,
    pretrained: bool = False,
) -> Iterator[str]:
    """Yield what helps, the surest first, as sentences.

    Args:
        labels: (N,) of the scored images.
        presence: (N, K), the answers to them.
        pictures: the number of training pictures of each class; empty where it is unknown.
        size_px: the longest side of the network's images.
        pretrained: whether its stem's weights are published ones.
    """
    worst, *others = recalls(labels, presence, class_names)
    images, right = len(labels), sum(recall.right for recall in (worst, *others))
    error, guess = 1 - right / images, 1 - np.bincount(labels).max() / images
    if error >= BARELY_LEARNT * guess:
        yield (
            f"That is hardly better than guessing ({100 * guess:.0f} %). Look at preview.png in "
            "the folder of the run: can you tell the classes apart at this size? Where colour does "
            "not tell the classes apart, --channels 1 helps; so may more epochs, --set epochs=..."
        )
    is_ready = images >= FEW_SCORED and error <= READY < guess
    if is_ready:
        yield (
            f"Ready to be used: {images - right:,} of {images:,} wrong. Watch pictures of other "
            "cameras, light and backgrounds, and of things that are none of the classes: it "
            "answers those with a class, too."
        )
    least, most = min(pictures.values(), default=0), max(pictures.values(), default=0)
    if 2 * least < most:
        rare = min(pictures, key=lambda name: pictures[name])
        yield (
            f"Add pictures of {rare} first: it has {least:,} training pictures, the largest class "
            f"has {most:,}."
        )
    elif error and not is_ready and 0 < least < FEW:
        stem = "" if pretrained else " Of photographs, --stem pretrained helps, too."
        yield (
            f"Add pictures of each class, of {worst.class_name} first: with {least:,} training "
            f"pictures of a class, more of them help most. A larger --size rarely helps so "
            f"few.{stem}"
        )
    elif error and not is_ready and least >= ENOUGH:
        yield f"Where details tell the classes apart, try a --size above {size_px}."
    if confused := most_confused(labels, presence, class_names):
        own, other, count = confused
        yield (
            f"{own} is taken for {other} most often ({count:,} times): look at these pictures. Are "
            "they in the right folder? What would tell them apart?"
        )
    if images < FEW_SCORED:
        yield (
            f"{images:,} pictures measure an error roughly: score new ones with `python -m "
            "training evaluate BUNDLE --data TESTFOLDER`."
        )
