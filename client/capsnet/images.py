"""Turn paths, files, Pillow images and arrays into the bytes of an image file."""

from __future__ import annotations

import io
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

ImageLike: TypeAlias = (
    str | PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image.Image | NDArray[Any]
)
"""A path, the bytes of an image file, an open binary file, a Pillow image or an array."""
_MANY_CHANNELS = frozenset({2, *range(5, 17)})
_PNG_MODES = frozenset({"1", "L", "LA", "P", "RGB", "RGBA", "I;16"})


def is_one(images: object) -> bool:
    """Whether this is one image, or something that cannot contain several images."""
    one = (str, PathLike, bytes, bytearray, memoryview, Image.Image)
    like_one = hasattr(images, "read") or hasattr(images, "__array__")
    return isinstance(images, one) or like_one or not isinstance(images, Iterable)


def read_image(image: ImageLike) -> bytes:
    """The bytes of an image file; Pillow images and arrays become a PNG.

    Args:
        image: an array is (H, W), (H, W, C) or (C, H, W), of 0 to 255 or of floats in [0, 1]. An
            array (H, W, C) of 2, or of 5 to 16, channels becomes a `.npy` file, and may be uint16.
            For 4 channels that are not RGBA, save a `.npy` file and pass its path.

    Raises:
        OSError: the file cannot be read.
        TypeError: this is no image.
        ValueError: the array has another shape or other values.
    """
    if isinstance(image, (str, PathLike)):
        return Path(image).read_bytes()
    if isinstance(image, (bytes, bytearray, memoryview)):
        return bytes(image)
    if isinstance(image, Image.Image):
        return _to_png(ImageOps.exif_transpose(image))
    if isinstance(image, np.ndarray) or hasattr(image, "__array__"):
        array = np.asarray(image)
        return _to_npy(array) if _has_many_channels(array) else _to_png(_from_array(array))
    if hasattr(image, "read"):
        content = image.read()
        if not isinstance(content, bytes):
            raise TypeError("open the file in binary mode: open(path, 'rb')")
        return content
    raise TypeError(f"an image is a path, bytes, a file or an array, not {type(image).__name__}")


def _has_many_channels(array: NDArray[Any]) -> bool:
    """Whether the array's last axis has channels that no image file has."""
    return array.ndim == 3 and array.shape[0] not in (1, 3) and array.shape[2] in _MANY_CHANNELS


def _to_npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _to_png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    mode = image.mode if image.mode in _PNG_MODES else "I;16" if image.mode == "I" else "RGB"
    image.convert(mode).save(file, "PNG")
    return file.getvalue()


def _from_array(array: NDArray[Any]) -> Image.Image:
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise ValueError(
            f"an array is one image (H, W), (H, W, C) or (C, H, W), not {array.shape}; "
            "pass list(images) for several"
        )
    return Image.fromarray(_to_bytes(array))


def _to_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """0 to 255, of an array of integers, truth values, or floats in [0, 1]."""
    fraction = array.dtype.kind in "fb"
    if array.dtype.kind not in "fbiu":
        raise ValueError(f"an image is an array of numbers, not of {array.dtype}")
    most = 1 if fraction else 255
    if not ((array >= 0) & (array <= most)).all():
        kind = "floats" if fraction else "integers"
        raise ValueError(f"an image of {kind} has values from 0 to {most}")
    return np.ascontiguousarray((array * 255.0).round() if fraction else array, np.uint8)
