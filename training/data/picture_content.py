"""The content of one picture file of a folder: an image file, or an array in a `.npy` file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from model.errors import Problem
from model.preprocess import Floats, crop, load_image, open_image
from model.preprocess.array import scale_array
from model.preprocess.header import FORMATS
from model.preprocess.pixels import turn_upright
from training.data.source import DatasetError

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".npy"})
"""The suffixes of files that are read, in any case."""
KINDS = ", ".join(FORMATS)
"""What is read, in words."""
UNREADABLE = (OSError, Problem)
"""The exceptions for files that are not whole pictures, or that the service refuses."""
_GREY_MODES = frozenset({"1", "L", "LA", "La", "I;16", "I;16B"})

Content = Image.Image | Floats
"""An image, or an array (H, W, C) in [0, 1]."""


class Look(NamedTuple):
    """The size and channels of a picture, by its header."""

    size: tuple[int, int]
    """Width and height, upright."""
    channels: int
    """1 if it is grey by its format, 3 if it may have colour, another number for an array."""


def open_content(file: Path, *, load: bool) -> Content:
    """Open a picture file, and read its pixels if `load` says so. Arrays are always read.

    Raises:
        OSError, model.errors.Problem: it is no whole picture, or a service would refuse it.
    """
    picture = open_image(file.read_bytes())
    return load_image(picture) if load and isinstance(picture, Image.Image) else picture


def look_at(picture: Content) -> Look:
    """The size and channels of a picture."""
    if isinstance(picture, Image.Image):
        channels = 1 if picture.mode in _GREY_MODES else 3
        return Look(turn_upright(picture).size, channels)
    height, width, channels = picture.shape
    return Look((width, height), channels)


def common_channels(looks: Iterable[Look], asked: int | None) -> int | None:
    """The number of channels of all pictures, where their formats decide it.

    Returns:
        1 where all are grey, the arrays' number where that is neither 1 nor 3, the number that was
        asked for; None if pixels decide between grey and colour.

    Raises:
        DatasetError: arrays differ, or cannot have the channels that were asked for.
    """
    found = sorted({look.channels for look in looks})
    if set(found) <= {1, 3}:
        if asked not in (None, 1, 3):
            raise DatasetError(f"pictures have 1 channel or 3, not {asked}")
        return 1 if found == [1] and asked is None else asked
    if len(found) > 1 or asked not in (None, *found):
        numbers = " and ".join(map(str, found))
        raise DatasetError(f"arrays of {numbers} channels cannot all have {asked or 'the same'}")
    return found[0]


def to_bytes(picture: Content, channels: int, height: int, width: int) -> NDArray[np.uint8]:
    """A picture as the network sees it, (C, H, W): cropped and scaled as serving does it."""
    if isinstance(picture, Image.Image):
        pixels = crop(picture, channels, height, width)
    else:
        pixels = _channels(scale_array(picture, height, width, middle=True), channels)
    return np.rint(pixels * 255).astype(np.uint8)


def _channels(pixels: Floats, channels: int) -> Floats:
    """An array (C, H, W) of grey or colour as grey or colour."""
    if len(pixels) == channels:
        return pixels
    if channels == 1:
        return np.asarray(pixels.mean(axis=0, keepdims=True))
    return pixels.repeat(channels, axis=0)
