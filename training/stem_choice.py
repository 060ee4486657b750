"""Whether the pictures of a folder need a pretrained stem, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
from PIL import Image

from training.data.picture_content import KINDS, SUFFIXES, UNREADABLE, open_content
from training.data.picture_files import find_pictures
from training.pretrained import MIN_PX

Stem = Literal["pretrained", "trained"]

SAMPLE = 60
"""The pictures of a folder that are looked at, at most."""
_PHOTOGRAPH, _DRAWING = 0.5, 0.75
"""The largest share of flat pixels of a photograph, which light and noise leave uneven, and the
least share of a drawing. JPEG drawings have about 0.84, photographs with a plain background 0.45.
"""
_FLAT = 1
"""The largest difference, of 255, in any channel between flat neighbours."""


@dataclass(frozen=True)
class StemChoice:
    """A stem, and the reason in words that follow `because`."""

    stem: Stem
    reason: str
    certain: bool = True
    """Whether the pictures decide. If not, a trial of both on held-out pictures does."""


def choose_stem(pictures: Sequence[Image.Image], *, channels: int | None = None) -> StemChoice:
    """Choose a stem for pictures of these kinds.

    Features of photographs were learnt from 1.3 million photographs; thirty pictures of a class are
    too few to learn them. Drawings, glyphs and small pictures are unlike those photographs.

    Args:
        pictures: some pictures of the folder, at their own size.
        channels: of the network's images, where the user chose it.
    """
    if channels not in (None, 3):
        return StemChoice("trained", f"its features need 3 channels, and you chose {channels}")
    side = median(min(picture.size) for picture in pictures)
    if side < MIN_PX:
        return StemChoice("trained", f"half of the pictures have fewer than {MIN_PX} pixels a side")
    if all(_is_grey(picture) for picture in pictures):
        return StemChoice("trained", "the pictures are grey")
    share = median(_share_of_flat(picture) for picture in pictures)
    if share <= _PHOTOGRAPH:
        return StemChoice("pretrained", "the pictures are colour photographs")
    if share >= _DRAWING:
        return StemChoice("trained", "the pictures have large even areas, as drawings do")
    return StemChoice("pretrained", "the pictures are between photographs and drawings", False)


def sample_pictures(folder: Path) -> list[Image.Image]:
    """Some pictures of each class of a folder, at their own size; arrays are left out.

    Raises:
        DatasetError: the folder has no classes of pictures.
    """
    found = find_pictures(folder, SUFFIXES, formats=KINDS)
    each = max(1, SAMPLE // len(found.classes))
    pictures = []
    for files in found.classes.values():
        for file in files[:: max(1, len(files) // each)][:each]:
            try:
                content = open_content(file, load=True)
            except UNREADABLE:
                continue  # reading the whole folder names it
            if isinstance(content, Image.Image):
                pictures.append(content)
    return pictures


def decide(
    folder: Path, *, channels: int | None, try_out: Callable[[Stem], float]
) -> tuple[Stem, str]:
    """Choose a stem for a folder of pictures, by a trial where the pictures do not decide.

    Args:
        channels: of the network's images, where the user chose it.
        try_out: trains with a stem for a short time; the error on held-out pictures, in percent.

    Returns:
        the stem, and a sentence that says why and how to choose otherwise.
    """
    pictures = sample_pictures(folder)
    if not pictures:
        return "trained", "stem: trained on your images, because they are arrays"
    choice = choose_stem(pictures, channels=channels)
    stem, reason = choice.stem, choice.reason
    if not choice.certain:
        errors = {kind: try_out(kind) for kind in ("pretrained", "trained")}
        stem = "trained" if errors["trained"] < errors["pretrained"] else "pretrained"
        reason = (
            f"{reason}, and after half a minute of training each, {errors['pretrained']:.0f} % of "
            f"the held-out pictures were wrong with the pretrained stem and "
            f"{errors['trained']:.0f} % with the trained one"
        )
    other: Stem = "trained" if stem == "pretrained" else "pretrained"
    return stem, f"stem: {stem}, because {reason}; --stem {other} takes the other one"


def _is_grey(picture: Image.Image) -> bool:
    pixels = np.asarray(picture.convert("RGB").resize((32, 32)), np.int16)
    return bool((pixels.max(axis=2) - pixels.min(axis=2)).mean() < 2)


def _share_of_flat(picture: Image.Image) -> float:
    """The share of pixels that nearly equal their right neighbour."""
    pixels = np.asarray(picture.convert("RGB"), np.int16)
    steps = np.abs(pixels[:, 1:] - pixels[:, :-1]).max(axis=2)
    return float((steps <= _FLAT).mean())
