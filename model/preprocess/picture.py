"""The way of one picture."""

from __future__ import annotations

from typing import Literal

from PIL import Image

from model.bundle import PreprocessRule
from model.preprocess.grey import to_grey
from model.preprocess.orientation import turn_upright
from model.preprocess.pixels import Floats, resize
from model.preprocess.polarity import Polarity, border_polarity
from model.preprocess.prepared import Prepared
from model.preprocess.strokes import fit_strokes

Fit = Literal["auto", "none", "stretch", "digit", "pair"]


class PreprocessError(ValueError):
    """The picture cannot be used in the way that was asked for."""


def prepare(
    picture: Image.Image,
    size: int,
    *,
    rule: PreprocessRule = "digit",
    fit: Fit = "auto",
    polarity: Polarity = "auto",
) -> Prepared:
    """Make a picture look like a training image.

    A picture that already has the network's size is passed through untouched, but for its
    polarity. Any other is made upright and grey, freed of its ground and uneven light, cropped to
    its strokes, scaled and centred by mass.

    Args:
        picture: decoded, of any mode.
        size: height and width of the network's images, in pixels.
        rule: the bundle's own; what `fit="auto"` does with a picture of another size.
        fit: `none` takes the pixels as they are, `stretch` scales the whole picture, `digit` and
            `pair` find the strokes.
        polarity: found from the border by default.

    Raises:
        PreprocessError: `fit="none"` and the picture has another size than the network's.
    """
    upright = turn_upright(picture)
    native = upright.size == (size, size)
    chosen = fit if fit != "auto" else ("none" if native else rule)
    if chosen == "none" and not native:
        width, height = upright.size
        raise PreprocessError(f"fit=none needs {size}x{size} pixels, not {width}x{height}")
    grey = to_grey(upright)
    if chosen in ("digit", "pair"):
        return fit_strokes(grey, size, polarity, rule=chosen)
    if chosen == "stretch":
        grey = resize(grey, size, size)
    found = border_polarity(grey) if polarity == "auto" else polarity
    image: Floats = grey if found == "light-on-dark" else 1 - grey
    return Prepared(image[None], chosen, found, None)
