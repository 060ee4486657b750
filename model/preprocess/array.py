"""Pictures as arrays, in `.npy` files: any number of channels, 8 or 16 bits, or floats."""

from __future__ import annotations

import math
import re
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model.errors import UnreadablePicture
from model.preprocess.pixels import SIXTEEN_BITS, WHITE, Floats

SIGNATURE = b"\x93NUMPY"
"""The first bytes of a `.npy` file."""
MAX_CHANNELS = 16
"""A picture may have this many channels."""
_HEADER = re.compile(
    rb"\{'descr': '([<>|](?:u1|u2|f4|f8))', 'fortran_order': (True|False), "
    rb"'shape': \((\d{1,6}), (\d{1,6})(?:, (\d{1,2}))?\), \} *\n"
)


def view_array(content: bytes) -> NDArray[Any]:
    """Return the numbers (H, W, C) of a `.npy` file of one picture, which are not copied.

    No object is ever unpickled.

    Raises:
        UnreadablePicture: it is no picture (H, W) or (H, W, C) of 8 or 16 bits or floats, or has
            another length than it announces.
    """
    start = 10 if content[6:7] == b"\1" else 12
    try:
        (length,) = struct.unpack_from("<H" if start == 10 else "<I", content, 8)
    except struct.error as error:
        raise UnreadablePicture("the array's header is truncated") from error
    header = _HEADER.fullmatch(content, start, start + length)
    if header is None:
        raise UnreadablePicture(
            "an array is one picture, (height, width) or (height, width, channels), of uint8, "
            "uint16, float32 or float64"
        )
    kind, by_columns, *sizes = header.groups()
    shape = tuple(int(size or 1) for size in sizes)
    if not min(shape) or shape[2] > MAX_CHANNELS:
        raise UnreadablePicture(f"a picture has pixels, and 1 to {MAX_CHANNELS} channels")
    dtype, offset = np.dtype(kind.decode()), start + length
    if len(content) - offset != math.prod(shape) * dtype.itemsize:
        raise UnreadablePicture("the array is truncated, or longer than its header says")
    return np.ndarray(shape, dtype, content, offset, order="F" if by_columns == b"True" else "C")


def to_unit(pixels: NDArray[Any]) -> Floats:
    """Convert pixels of any accepted type to float32 in [0, 1].

    Whole numbers are divided by the largest of their type.

    Raises:
        UnreadablePicture: floats lie outside of [0, 1].
    """
    if pixels.dtype.kind == "u":
        most = WHITE if pixels.dtype.itemsize == 1 else SIXTEEN_BITS
        return np.asarray(pixels / np.float32(most), np.float32)
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise UnreadablePicture("an array of floats has values from 0 to 1")
    return np.asarray(pixels, np.float32)
