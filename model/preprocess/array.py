"""Pictures as arrays, in `.npy` files: any number of channels, 8 or 16 bits, or floats."""

from __future__ import annotations

import re
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.preprocess.pixels import SIXTEEN_BITS, WHITE, Floats

SIGNATURE = b"\x93NUMPY"
"""The first bytes of a `.npy` file."""
MAX_CHANNELS = 16
"""A picture may have this many channels."""
_HEADER = re.compile(
    rb"\{'descr': '([<>|](?:u1|u2|f4|f8))', 'fortran_order': (True|False), "
    rb"'shape': \((\d{1,6}), (\d{1,6})(?:, (\d{1,2}))?\), \} *\n"
)


class ArrayHeader(NamedTuple):
    """The content of a `.npy` file, as its header announces it."""

    dtype: np.dtype[Any]
    height: int
    width: int
    channels: int
    by_columns: bool
    """Whether the first index changes fastest, as in Fortran."""
    offset: int
    """The position of the numbers in the file, in bytes."""


def read_array_header(content: bytes) -> ArrayHeader:
    """Read the header of a `.npy` file of one picture.

    Raises:
        ValueError: it is no picture (H, W) or (H, W, C) of 8 or 16 bits or floats, or has another
            length than it announces.
    """
    start = 10 if content[6:7] == b"\1" else 12
    try:
        (length,) = struct.unpack_from("<H" if start == 10 else "<I", content, 8)
    except struct.error as error:
        raise ValueError("the array's header is truncated") from error
    header = _HEADER.fullmatch(content, start, start + length)
    if header is None:
        raise ValueError(
            "an array is one picture, (height, width) or (height, width, channels), of uint8, "
            "uint16, float32 or float64"
        )
    dtype, order, *sizes = header.groups()
    height, width, channels = (int(size or 1) for size in sizes)
    if not min(height, width, channels) or channels > MAX_CHANNELS:
        raise ValueError(f"a picture has pixels, and 1 to {MAX_CHANNELS} channels")
    kind, offset = np.dtype(dtype.decode()), start + length
    if len(content) - offset != height * width * channels * kind.itemsize:
        raise ValueError("the array is truncated, or longer than its header says")
    return ArrayHeader(kind, height, width, channels, order == b"True", offset)


def read_array(content: bytes) -> Floats:
    """Read a `.npy` file of one picture as (H, W, C) in [0, 1].

    Whole numbers are divided by the largest of their type. No object is ever unpickled.

    Raises:
        ValueError: see `read_array_header`; or floats lie outside of [0, 1].
    """
    header = read_array_header(content)
    shape = (header.height, header.width, header.channels)
    numbers = np.frombuffer(content, header.dtype, offset=header.offset)
    pixels = numbers.reshape(shape, order="F" if header.by_columns else "C")
    return to_unit(pixels)


def to_unit(pixels: NDArray[Any]) -> Floats:
    """Convert pixels of any accepted type to float32 in [0, 1].

    Raises:
        ValueError: floats lie outside of [0, 1].
    """
    if pixels.dtype.kind == "u":
        most = WHITE if pixels.dtype.itemsize == 1 else SIXTEEN_BITS
        return np.asarray(pixels / np.float32(most), np.float32)
    if not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError("an array of floats has values from 0 to 1")
    return np.asarray(pixels, np.float32)
