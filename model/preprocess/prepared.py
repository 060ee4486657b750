"""A picture that is fitted to a network, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from model.preprocess.pixels import Floats

FoundPolarity = Literal["light-on-dark", "dark-on-light"]
Polarity = Literal["auto", "light-on-dark", "dark-on-light"]


class Box(NamedTuple):
    """A rectangle in a picture, in pixels. Its right and bottom lie outside."""

    left: int
    top: int
    right: int
    bottom: int

    def scaled(self, across: float, down: float) -> Box:
        """Return the same rectangle in an image so many times as wide and as high."""
        return Box(
            round(self.left * across),
            round(self.top * down),
            round(self.right * across),
            round(self.bottom * down),
        )


@dataclass(frozen=True)
class Prepared:
    """An image ready for the network, and what was done to make it."""

    image: Floats
    """The image (C, H, W) in [0, 1]. Strokes are light on dark."""
    fit: Literal["none", "stretch", "crop", "digit", "pair"]
    polarity: FoundPolarity | None
    """The polarity of the image as uploaded; None for photographs."""
    box: Box | None
    """The strokes' rectangle in the upright image; None if it was not looked for or nothing was
    found.
    """
