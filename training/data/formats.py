"""The published formats of the data sets: IDX of MNIST, and CIFAR-10's binary version.

torchvision is not used, see docs/adr/0029-own-readers.md.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
"""What a file holds: `images` (N, C, H, W) uint8, `labels` (N,) int64, or both."""

_UNSIGNED_BYTE = 0x08
_CIFAR_RECORD = 1 + 3 * 32 * 32


def read_idx(content: bytes) -> Columns:
    """Read MNIST's format: images of one channel, or labels, in one file.

    Raises:
        ValueError: not an IDX file of images or labels, or not as long as its header says.
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise ValueError("not an IDX file of unsigned bytes")
    sizes = f">{content[3]}I"
    start = 4 + struct.calcsize(sizes)
    if len(content) < start:
        raise ValueError("the IDX header is cut off")
    shape = struct.unpack_from(sizes, content, 4)
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"the IDX header announces {math.prod(shape)} bytes and {len(content) - start} follow"
        )
    array = np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    if array.ndim == 1:
        return {"labels": array.astype(np.int64)}
    if array.ndim == 3:
        return {"images": array[:, None]}
    raise ValueError(f"an IDX file of {array.ndim} dimensions holds neither images nor labels")


def read_cifar(content: bytes) -> Columns:
    """Read CIFAR-10's binary version: a label byte, then 32x32 bytes each of red, green and blue.

    Raises:
        ValueError: the file does not consist of whole records, or a label is above 9.
    """
    if not content or len(content) % _CIFAR_RECORD:
        raise ValueError(
            f"{len(content)} bytes are no whole number of {_CIFAR_RECORD}-byte records"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _CIFAR_RECORD)
    labels = records[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise ValueError(f"label {labels.max()} is none of CIFAR-10's")
    return {"images": records[:, 1:].reshape(-1, 3, 32, 32), "labels": labels}
