"""The IDX format of MNIST: a big-endian header and bytes."""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

_UNSIGNED_BYTE = 0x08


def parse_idx(content: bytes) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, of any number of dimensions.

    Args:
        content: the decompressed file.

    Returns:
        a read-only array over `content`.

    Raises:
        ValueError: not an IDX file of bytes, or shorter or longer than its header says.
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise ValueError("not an IDX file of unsigned bytes")
    dimensions = content[3]
    header_size = 4 + 4 * dimensions
    if len(content) < header_size:
        raise ValueError("the IDX header is cut off")
    shape = struct.unpack(f">{dimensions}I", content[4:header_size])
    expected = math.prod(shape)
    if len(content) - header_size != expected:
        raise ValueError(
            f"the IDX header announces {expected} bytes and {len(content) - header_size} follow"
        )
    return np.frombuffer(content, np.uint8, offset=header_size).reshape(shape)
