"""Sentences on what limits the answers of a view, where a network's manifest says so."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence

from PIL import Image, ImageDraw

from model.bundle import Manifest
from model.canvas import INK, MARGIN, PAPER, font, png

_FONT_PX, _LINE_PX, _LETTER_PX = 12, 17, 6.5
"""The size of a note's letters under a drawing, the pitch of its lines, and a letter's width."""


def poor_decoder(manifest: Manifest) -> str | None:
    """What pictures of the decoder lack, where poses explain less than half or a linear code."""
    explained = manifest.explained
    if explained is not None and explained.is_weak:
        return (
            f"A pose of {manifest.name} explains only {100 * explained.pose:.0f} % of the variance "
            "of images, so what it draws says little: look at neighbours, occlusion, routing and "
            "confidence instead, or train with more images of each class (of photographs, with "
            "--stem pretrained)."
        )
    if explained is None or not explained.is_low:
        return None
    return (
        f"A pose of {manifest.name} explains only {100 * explained.pose:.0f} % of the variance of "
        f"images; PCA of the same class with as many numbers explains "
        f"{100 * explained.pca_same:.0f} %. What the decoder draws shows little of the image "
        "except its class."
    )


def untrained_absent_classes(manifest: Manifest) -> str | None:
    """Why the decoder's pictures of absent classes say little, unless it learnt from pairs."""
    recipe = manifest.training.get("recipe")
    if recipe is None or recipe.get("task") == "pairs":
        return None
    return (
        f"The decoder of {manifest.name} was trained on the class of each image alone. What it "
        "draws for an absent class is left to chance, often the same blur for every image. Do not "
        "read it as the network's idea of that class in this image."
    )


def useless_sets(manifest: Manifest, coverage: float | None) -> list[str] | None:
    """That sets of labels add nothing, where each is the most probable label alone."""
    confidence = manifest.confidence
    if coverage is None or confidence is None or not confidence.is_top_label_alone(coverage):
        return None
    note = (
        f"At a coverage of {coverage:g}, every set of {manifest.name} is the most probable label "
        "alone: the network is right more often than that, so the sets add nothing."
    )
    return [note]


def write_below(drawing: bytes, notes: Sequence[str]) -> bytes:
    """Add the notes below a drawing, a PNG file."""
    if not notes:
        return drawing
    with Image.open(io.BytesIO(drawing)) as drawn:
        columns = max(20, int((drawn.width - 2 * MARGIN) / _LETTER_PX))
        lines = [line for note in notes for line in textwrap.wrap(note, columns)]
        size = (drawn.width, drawn.height + _LINE_PX * len(lines) + MARGIN)
        noted = Image.new("RGB", size, PAPER)
        noted.paste(drawn)
        draw = ImageDraw.Draw(noted)
        for row, line in enumerate(lines):
            draw.text((MARGIN, drawn.height + _LINE_PX * row), line, INK, font(_FONT_PX))
    return png(noted)
