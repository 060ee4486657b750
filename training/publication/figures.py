"""The README's figures, drawn from a bundle with Pillow alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from model.bundle import Bundle
from model.canvas import ACCENT, INK, PAPER, enlarge, font
from model.preprocess import Floats, scale
from model.runtime import Runtime
from model.segmentation import colour, find_masks
from training.data.datasets import DATASETS, HELD_OUT, hold_out, load
from training.data.pairs import PairSet, validation_pairs
from training.evaluation.answers import longest
from training.evaluation.pair_scores import draw, pick_absent
from training.publication.graphs import ExportError

_ENLARGE = 3
_GAP, _LEFT, _LINE, _FONT = 8, 92, 18, 14


def draw_first_pairs(bundle: Bundle, target: Path, *, columns: int, data_dir: Path) -> None:
    """Draw a bundle at work on the first pairs that also validate: chosen by their seed alone.

    Raises:
        ExportError: the bundle is not for overlapping digits.
    """
    manifest = bundle.manifest
    if manifest.mask_threshold is None:
        raise ExportError(f"{manifest.name} is not for overlapping digits")
    recipe = manifest.training["recipe"]
    _, digits = hold_out(load(DATASETS[recipe["dataset"]], "train", data_dir), HELD_OUT)
    pairs = validation_pairs(digits, size=manifest.image_size, shift_px=recipe["shift_px"])
    target.parent.mkdir(parents=True, exist_ok=True)
    draw_segmentation(Runtime(bundle), PairSet(*(array[:columns] for array in pairs)), target)


def draw_segmentation(runtime: Runtime, pairs: PairSet, target: Path) -> None:
    """Pairs from top to bottom: as the network sees, draws and divides them (paper, figure 5).

    Columns are pairs. The last row is the decoded capsule of a class that is not there. Above
    stand the labels, and below them what the network named, coloured where that is wrong.

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
        "picture": [image[0] for image in images],
        "drawn": [colour(layers) for layers in drawn],
        "masks": [colour(layers.astype(np.float32)) for layers in masks],
        "not there": [image[0] for image in draw(runtime, encoding, absent[:, None])],
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
    figure = Image.new("RGB", size, PAPER)
    pen = ImageDraw.Draw(figure)
    for text, y in (("labels", 0), ("named", _LINE)):
        pen.text((_LEFT - _GAP, y + 2), text, INK, font(_FONT), anchor="ra")
    for row, (name, pictures) in enumerate(rows.items()):
        y = top + cell * row
        pen.text((_LEFT - _GAP, y + cell // 2), name, INK, font(_FONT), anchor="rm")
        for column, picture in enumerate(pictures):
            figure.paste(enlarge(picture, _ENLARGE), (_LEFT + cell * column, y))
    for column, ((labels, named, wrong), absent) in enumerate(zip(above, below, strict=True)):
        middle = _LEFT + cell * column + (cell - _GAP) // 2
        pen.text((middle, 2), labels, INK, font(_FONT), anchor="ma")
        pen.text((middle, _LINE + 2), named, ACCENT if wrong else INK, font(_FONT), anchor="ma")
        pen.text((middle, top + cell * len(rows) - 2), absent, INK, font(_FONT), anchor="ma")
    return figure


def _sum(labels: list[int]) -> str:
    return " + ".join(str(label) for label in labels)
