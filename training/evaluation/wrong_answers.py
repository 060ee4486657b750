"""Images that a network answered wrongly, gathered while it is scored, and drawn for its card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from model.canvas import ACCENT, INK, MARGIN, PAPER, enlarge, font, save_small
from model.preprocess import Floats, scale
from training.evaluation.answers import Labelled, answer, is_wrong

MOST_DRAWN = 100
_WIDTH = 900
_ENLARGE = 2
_FONT, _LINE, _GAP = 12, 15, 10


class WrongAnswers(NamedTuple):
    """Images with what they show and what was said; C classes each."""

    images: NDArray[np.uint8]
    """(N, H, W)."""
    labels: NDArray[np.int64]
    """(N, C), in the order of classes."""
    answers: NDArray[np.int64]
    """(N, C), likewise."""
    lengths: Floats
    """(N, 2): of the shortest capsule among the labels, then among the answers."""


def find_wrong(examples: Labelled, lengths: Floats) -> WrongAnswers:
    """Those of N examples that lengths (N, K) answer wrongly, in their order."""
    wrong = is_wrong(lengths, examples.labels)
    labels = np.sort(examples.labels.reshape(len(lengths), -1).astype(np.int64))[wrong]
    answers = answer(lengths, examples.labels)[wrong]
    shortest = [
        np.take_along_axis(lengths[wrong], said, axis=1).min(axis=1) for said in (labels, answers)
    ]
    return WrongAnswers(examples.images[wrong], labels, answers, np.stack(shortest, axis=1))


def draw_wrong(wrong: WrongAnswers, class_names: Sequence[str], target: Path) -> None:
    """Draw the first `MOST_DRAWN`.

    Above each image stand its label with that capsule's length and, coloured, the answer with its.

    Args:
        wrong: at least one.
        class_names: by label.
        target: PNG file to write.
    """
    images = scale(wrong.images[:MOST_DRAWN])[:, 0]
    captions = [
        (_caption(labels, lengths[0], class_names), _caption(answers, lengths[1], class_names))
        for _, labels, answers, lengths in zip(images, *wrong[1:], strict=False)
    ]
    side = _ENLARGE * images.shape[-1]
    widest = max(font(_FONT).getlength(line) for both in captions for line in both)
    across = max(side, math.ceil(widest)) + _GAP
    down = side + 2 * _LINE + _GAP
    columns = min(len(captions), (_WIDTH - MARGIN) // across)
    rows = math.ceil(len(captions) / columns)
    picture = Image.new("RGB", (MARGIN + columns * across, MARGIN + rows * down), PAPER)
    draw = ImageDraw.Draw(picture)
    for place, (image, (label, said)) in enumerate(zip(images, captions, strict=True)):
        x, y = MARGIN + place % columns * across, MARGIN + place // columns * down
        draw.text((x, y), label, INK, font(_FONT))
        draw.text((x, y + _LINE), said, ACCENT, font(_FONT))
        picture.paste(enlarge(image, _ENLARGE), (x, y + 2 * _LINE + 3))
    save_small(picture, target)


def _caption(classes: NDArray[np.int64], length: float, class_names: Sequence[str]) -> str:
    return f"{' + '.join(class_names[one] for one in classes)}  {length:.2f}"
