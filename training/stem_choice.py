"""Whether the pictures of a folder need a pretrained stem, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
from PIL import Image

from training.data.pictures import find_pictures, read_each
from training.pretrained import MIN_PX

Stem = Literal["pretrained", "trained"]

SAMPLE = 60
"""The pictures of a folder that are looked at, at most."""
_PHOTOGRAPH, _DRAWING = 0.5, 0.75
"""The largest share of flat pixels of photographs, which light and noise leave uneven, and the
least of drawings. JPEG drawings have about 0.84, photographs with a plain background 0.45."""
_FLAT = 1
"""The largest difference, of 255, in any channel between flat neighbours."""


def choose_stem(
    folder: Path, *, channels: int | None, try_out: Callable[[Stem], float]
) -> tuple[Stem, str]:
    """Choose a stem for a folder of pictures, by a trial where the pictures do not decide.

    Features of photographs were learnt from 1.3 million photographs; thirty pictures of a class are
    too few to learn them. Drawings, glyphs and small pictures are unlike those photographs.

    Args:
        channels: of the network's images, where the user chose it.
        try_out: trains with a stem for a short time; returns the error on held-out pictures, in
            percent.

    Returns:
        the stem, and a sentence that says why and how to choose otherwise.

    Raises:
        DatasetError: the folder has no classes of pictures.
    """
    stem, reason = _choose(_sample(folder), channels)
    if stem is None:
        kinds: tuple[Stem, ...] = ("pretrained", "trained")
        errors = {kind: try_out(kind) for kind in kinds}
        stem = "trained" if errors["trained"] < errors["pretrained"] else "pretrained"
        reason = (
            f"{reason}, and after a short training, {errors['pretrained']:.0f} % of the held-out "
            f"pictures were wrong with the pretrained stem and {errors['trained']:.0f} % with the "
            "trained one"
        )
    other = "trained" if stem == "pretrained" else "pretrained"
    return stem, f"stem: {stem}, because {reason}; --stem {other} takes the other one"


def _choose(pictures: Sequence[Image.Image], channels: int | None) -> tuple[Stem | None, str]:
    """The stem, or None where only a trial can tell, and the reason."""
    if not pictures:
        return "trained", "the images are arrays"
    if channels not in (None, 3):
        return "trained", f"its features need 3 channels, and you chose {channels}"
    if median(min(picture.size) for picture in pictures) < MIN_PX:
        return "trained", f"half of the pictures have fewer than {MIN_PX} pixels a side"
    if all(_is_grey(picture) for picture in pictures):
        return "trained", "the pictures are grey"
    return _judge_flat(pictures)


def _judge_flat(pictures: Sequence[Image.Image]) -> tuple[Stem | None, str]:
    share = median(_share_of_flat(picture) for picture in pictures)
    if share >= _DRAWING:
        return "trained", "the pictures have large even areas, as drawings do"
    if share <= _PHOTOGRAPH:
        return "pretrained", "the pictures are colour photographs"
    return None, "the pictures are between photographs and drawings"


def _sample(folder: Path) -> list[Image.Image]:
    """Some pictures of each class, at their own size; arrays and unreadable files are left out."""
    found = find_pictures(folder)
    each = max(1, SAMPLE // len(found.classes))
    chosen = [
        file
        for files in found.classes.values()
        for file in files[:: max(1, len(files) // each)][:each]
    ]
    contents = read_each(chosen, lambda content: content).values()
    return [content for content in contents if isinstance(content, Image.Image)]


def _is_grey(picture: Image.Image) -> bool:
    pixels = np.asarray(picture.convert("RGB").resize((32, 32)), np.int16)
    return bool((pixels.max(axis=2) - pixels.min(axis=2)).mean() < 2)


def _share_of_flat(picture: Image.Image) -> float:
    """The share of pixels that nearly equal their right neighbour."""
    pixels = np.asarray(picture.convert("RGB"), np.int16)
    steps = np.abs(pixels[:, 1:] - pixels[:, :-1]).max(axis=2)
    return float((steps <= _FLAT).mean())
