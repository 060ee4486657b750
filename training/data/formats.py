"""The published file formats of the data sets, each to the columns that a file holds.

Columns are `images` (N, C, H, W) uint8, `labels` (N,) int64 and, where examples are views of the
same thing, `groups` (N,): which thing.
"""

from __future__ import annotations

import io
import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]

_UNSIGNED_BYTE = 0x08
_CIFAR_RECORD = 1 + 3 * 32 * 32
_NORB_TYPES: dict[int, np.dtype[Any]] = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}


def read_idx(content: bytes) -> Columns:
    """Read MNIST's format: images of one channel, or labels, in one file.

    Raises:
        ValueError: the file holds neither.
    """
    array = parse_idx(content)
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


def read_svhn(content: bytes) -> Columns:
    """Read SVHN's cropped digits: a MATLAB 5 file of `X` (32, 32, 3, N) and `y` (N, 1).

    The digit 0 has label 10 in the file and label 0 here.

    Raises:
        ModuleNotFoundError: scipy is not installed.
        ValueError: not such a file.
    """
    from scipy.io import loadmat  # noqa: PLC0415  no other data set needs it
    from scipy.io.matlab import MatReadError  # noqa: PLC0415

    try:
        variables = loadmat(io.BytesIO(content), variable_names=["X", "y"])
        images, labels = variables["X"], variables["y"]
    except (KeyError, MatReadError, NotImplementedError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"not a MATLAB 5 file of X and y: {error}") from error
    if images.ndim != 4 or labels.size != images.shape[3]:
        raise ValueError(f"X of shape {images.shape} does not belong to {labels.size} labels")
    if not 1 <= labels.min() <= labels.max() <= 10:
        raise ValueError("labels are not from 1 to 10")
    return {
        "images": np.ascontiguousarray(images.transpose(3, 2, 0, 1)),
        "labels": labels.ravel().astype(np.int64) % 10,
    }


def read_norb(content: bytes) -> Columns:
    """Read a matrix of smallNORB: images (`dat`), classes (`cat`) or views (`info`).

    Of each pair of images the first camera's is taken, and each 2x2 pixels become their mean.

    Raises:
        ValueError: none of the three.
    """
    array = parse_norb(content)
    if array.dtype == np.uint8 and array.ndim == 4:
        left = array[:, 0].astype(np.uint16)
        squares = left[:, ::2, ::2] + left[:, 1::2, ::2] + left[:, ::2, 1::2] + left[:, 1::2, 1::2]
        return {"images": ((squares + 2) // 4).astype(np.uint8)[:, None]}
    if array.ndim == 1:
        return {"labels": array.astype(np.int64)}
    if array.ndim == 2:
        return {"groups": array[:, 0].astype(np.int64)}
    raise ValueError(f"a matrix of shape {array.shape} is none of smallNORB's")


def parse_idx(content: bytes) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes, as a read-only array of any number of dimensions.

    Raises:
        ValueError: not an IDX file of bytes, or shorter or longer than its header says.
    """
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise ValueError("not an IDX file of unsigned bytes")
    return np.asarray(_parse(content, np.dtype("u1"), 4, f">{content[3]}I", "IDX"))


def parse_norb(content: bytes) -> NDArray[Any]:
    """A binary matrix of bytes or of 32-bit integers as NORB's authors store it, read-only.

    A header of little-endian 32-bit integers: magic number, number of dimensions, and the sizes,
    of which there are three at least.

    Raises:
        ValueError: not such a file, or shorter or longer than its header says.
    """
    magic, dimensions = struct.unpack("<2I", content[:8].ljust(8, b"\0"))
    if magic not in _NORB_TYPES:
        raise ValueError("not a binary matrix of bytes or integers")
    unused = 4 * max(0, 3 - dimensions)
    sizes = f"<{dimensions}I{unused}x"
    return _parse(content, _NORB_TYPES[magic], 8, sizes, "matrix")


def _parse(
    content: bytes, dtype: np.dtype[Any], offset: int, sizes: str, kind: str
) -> NDArray[Any]:
    """The array behind a header whose sizes, as `struct` reads them, begin at `offset`."""
    start = offset + struct.calcsize(sizes)
    if len(content) < start:
        raise ValueError(f"the {kind} header is cut off")
    shape = struct.unpack_from(sizes, content, offset)
    expected = math.prod(shape) * dtype.itemsize
    if len(content) - start != expected:
        raise ValueError(
            f"the {kind} header announces {expected} bytes and {len(content) - start} follow"
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape)
