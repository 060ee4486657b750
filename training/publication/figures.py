"""The README's figures, drawn from a bundle with Pillow alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from model.preprocess import WHITE, Floats, scale
from model.runtime import Runtime
from model.segmentation import colour, find_masks
from training.data.pairs import PairSet
from training.evaluation.answers import longest
from training.evaluation.pair_scores import draw, pick_absent

_ENLARGE = 3
_GAP, _LEFT, _LINE = 8, 92, 18
_INK, _WRONG, _PAPER = "#222222", "#c01c28", "#ffffff"


def draw_segmentation(runtime: Runtime, pairs: PairSet, target: Path) -> None:
    """Pairs from top to bottom: as the network sees, draws and divides them (paper, figure 5).

    Columns are pairs. The last row is the decoded capsule of a class that is not there. Above
    stand the labels, and below them what the network named, in red where that is wrong.

    Args:
        runtime: of a bundle for overlapping digits.
        pairs: a few, each a column.
        target: PNG file to write.
    """
    threshold = runtime.bundle.manifest.mask_threshold
    assert threshold is not None
    images = scale(pairs.images)
    encoding = runtime.encode(images)
    named = longest(encoding.lengths, 2)
    drawn = draw(runtime, encoding, named)
    absent = pick_absent(encoding, pairs.labels)
    masks = find_masks(images[:, 0], drawn, threshold=threshold)
    rows = {
        "picture": [_grey(image[0]) for image in images],
        "drawn": [colour(layers) for layers in drawn],
        "masks": [colour(layers.astype(np.float32)) for layers in masks],
        "not there": [_grey(image[0]) for image in draw(runtime, encoding, absent[:, None])],
    }
    captions = [
        (_sum(labels), _sum(answer), sorted(labels) != sorted(answer))
        for labels, answer in zip(pairs.labels.tolist(), named.tolist(), strict=True)
    ]
    _lay_out(rows, captions, [str(label) for label in absent]).save(target, "PNG")


def _lay_out(
    rows: dict[str, list[Floats]], above: list[tuple[str, str, bool]], below: list[str]
) -> Image.Image:
    cell = _ENLARGE * len(next(iter(rows.values()))[0]) + _GAP
    top = 2 * _LINE + _GAP
    size = (_LEFT + cell * len(above), top + cell * len(rows) + _LINE)
    figure = Image.new("RGB", size, _PAPER)
    pen, font = ImageDraw.Draw(figure), ImageFont.load_default(14)
    for text, y in (("labels", 0), ("named", _LINE)):
        pen.text((_LEFT - _GAP, y + 2), text, _INK, font, anchor="ra")
    for row, (name, pictures) in enumerate(rows.items()):
        y = top + cell * row
        pen.text((_LEFT - _GAP, y + cell // 2), name, _INK, font, anchor="rm")
        for column, picture in enumerate(pictures):
            figure.paste(_enlarge(picture), (_LEFT + cell * column, y))
    for column, ((labels, named, wrong), absent) in enumerate(zip(above, below, strict=True)):
        middle = _LEFT + cell * column + (cell - _GAP) // 2
        pen.text((middle, 2), labels, _INK, font, anchor="ma")
        pen.text((middle, _LINE + 2), named, _WRONG if wrong else _INK, font, anchor="ma")
        pen.text((middle, top + cell * len(rows) - 2), absent, _INK, font, anchor="ma")
    return figure


def _grey(image: Floats) -> Floats:
    """(H, W) to (H, W, 3)."""
    return image[..., None].repeat(3, axis=2)


def _enlarge(image: Floats) -> Image.Image:
    pixels = (image.clip(0, 1) * WHITE + 0.5).astype(np.uint8)
    return Image.fromarray(pixels.repeat(_ENLARGE, 0).repeat(_ENLARGE, 1))


def _sum(labels: list[int]) -> str:
    return " + ".join(str(label) for label in labels)
