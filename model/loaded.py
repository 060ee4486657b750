"""A loaded bundle for notebooks, which checks its arguments. `Runtime` does not."""

from __future__ import annotations

import io
from os import PathLike
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, UnidentifiedImageError

from model.errors import NotOffered
from model.outputs import Encoding, Trace
from model.preprocess import WHITE, Fit, Floats, Polarity
from model.runtime import Runtime

Picture: TypeAlias = (
    Image.Image | str | PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | NDArray[Any]
)
"""A Pillow image, a path, the bytes of an image file, an open binary file, or an array: (H, W),
(H, W, C) or (C, H, W), of whole numbers from 0 to 255 or of floats in [0, 1]."""
_SLACK = 1e-3
"""The tolerance beyond [0, 1], for rounding."""


class Classification(NamedTuple):
    """The most present class of a picture."""

    label: int
    """The label, from 0 to K - 1."""
    class_name: str
    """The name of that class."""
    presence: float
    """The presence of this class, in [0, 1]."""
    pose: Floats
    """The pose (D,) of this class's capsule; empty where the network has no poses."""


class LoadedBundle(Runtime):
    """The object that `model.load` returns: a `Runtime` that checks shapes, types and ranges."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the K classes, by label."""
        return self.bundle.manifest.class_names

    def classify(
        self, picture: Picture, *, fit: Fit = "auto", polarity: Polarity = "auto"
    ) -> Classification:
        """Classify one picture: the most present class and its pose, by `prepare` and `encode`.

        Raises:
            TypeError: this is no picture.
            ValueError: it cannot be read or fitted; the message says why.
            OSError: the file cannot be read.
        """
        presence, poses = self.encode(self.prepare(picture, fit=fit, polarity=polarity))
        label = int(presence[0].argmax())
        return Classification(
            label, self.class_names[label], float(presence[0, label]), poses[0, label]
        )

    def prepare(
        self, picture: Picture, *, fit: Fit = "auto", polarity: Polarity = "auto"
    ) -> Floats:
        """A picture of any size as a batch of one image, (1, C, H, W).

        Raises:
            TypeError: this is no picture.
            ValueError: it cannot be read or fitted; the message says why.
            OSError: the file cannot be read.
        """
        return super().prepare(open_picture(picture), fit=fit, polarity=polarity)

    def encode(self, images: ArrayLike) -> Encoding[Floats]:
        """Encode images (N, C, H, W), floats in [0, 1], whose strokes are light on dark.

        Raises:
            TypeError: these are no floats.
            ValueError: they have another shape or lie outside [0, 1].
        """
        return super().encode(self._images(images, any_size=self.bundle.manifest.any_size))

    def decode(self, poses: ArrayLike, classes: ArrayLike) -> Floats:
        """Draw poses (M, D) of classes (M,) as images (M, C, H, W) in [0, 1].

        Raises:
            NotOffered: the network has no decoder.
            TypeError: poses are no floats, or classes no whole numbers.
            ValueError: they have other shapes, or there is no such class.
        """
        manifest = self.bundle.manifest
        if "decode" not in manifest.offers:
            raise NotOffered(f"{manifest.name} cannot decode")
        numbers, labels = _floats("poses", poses), np.asarray(classes)
        if labels.dtype.kind not in "iu":
            raise TypeError(f"classes are whole numbers, not {labels.dtype}")
        if numbers.ndim != 2 or numbers.shape[1] != manifest.class_dim:
            raise ValueError(f"poses must be (M, {manifest.class_dim}), not {numbers.shape}")
        if labels.shape != numbers.shape[:1]:
            raise ValueError(
                f"{len(numbers)} poses need classes of shape ({len(numbers)},), not {labels.shape}"
            )
        if ((labels < 0) | (labels >= manifest.num_classes)).any():
            raise ValueError(f"classes are 0 to {manifest.num_classes - 1}, not {labels.tolist()}")
        return super().decode(numbers, labels.astype(np.int64))

    def trace(self, images: ArrayLike) -> Trace[Floats]:
        """Trace the routing of images (N, C, H, W), floats in [0, 1].

        Raises:
            NotOffered: the network has no routing.
            TypeError: these are no floats.
            ValueError: they have another shape or lie outside [0, 1].
        """
        return super().trace(self._images(images))

    def _images(self, images: ArrayLike, *, any_size: bool = False) -> Floats:
        channels, height, width = self.bundle.manifest.image_shape
        numbers = _floats("images", images, hint="; divide by 255, or let `prepare` read a picture")
        least, sizes = (channels, height, width), numbers.shape[1:]
        larger = (
            any_size
            and len(sizes) == 3
            and sizes[0] == channels
            and min(size - own for size, own in zip(sizes, least, strict=True)) >= 0
        )
        if not (sizes == least or larger) or not len(numbers):
            raise ValueError(
                f"images must be (N, {channels}, {height}, {width}), not {numbers.shape}; "
                "`prepare` makes one of a picture"
            )
        if not (numbers.min() >= -_SLACK and numbers.max() <= 1 + _SLACK):
            raise ValueError(
                f"images lie in [0, 1], these from {numbers.min():g} to {numbers.max():g}; divide "
                "by 255, or let `prepare` read a picture"
            )
        return numbers


def open_picture(picture: Picture) -> Image.Image:
    """Open a picture of any accepted kind as a Pillow image.

    Raises:
        TypeError: this is no picture.
        ValueError: it cannot be read as one, has more pixels than Pillow opens, or the array has
            another shape or other values.
        OSError: the file is not there.
    """
    if isinstance(picture, Image.Image):
        return picture
    if isinstance(picture, np.ndarray):
        return Image.fromarray(_to_bytes(_channels_last(picture)))
    if isinstance(picture, (bytes, bytearray, memoryview)):
        picture = io.BytesIO(picture)
    elif not isinstance(picture, (str, PathLike)) and not hasattr(picture, "read"):
        raise TypeError(
            "a picture is a path, the bytes of a file, an open file, a Pillow image or an array, "
            f"not {type(picture).__name__}"
        )
    try:
        return Image.open(picture)
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ValueError(str(error)) from error


def _channels_last(array: NDArray[Any]) -> NDArray[Any]:
    """(H, W) or (H, W, C) of one image."""
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    wrong = array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4))
    if wrong or not array.size:
        raise ValueError(
            f"an array is one picture, (H, W), (H, W, C) or (C, H, W), not {array.shape}"
        )
    return array


def _to_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """0 to 255, of whole numbers, truth values, or floats in [0, 1]."""
    fraction = array.dtype.kind in "fb"
    if array.dtype.kind not in "fbiu":
        raise TypeError(f"a picture is an array of numbers, not of {array.dtype}")
    most = 1 if fraction else WHITE
    if not ((array >= 0) & (array <= most)).all():
        raise ValueError(
            f"a picture of {array.dtype} has values from 0 to {most}, not {array.min():g} to "
            f"{array.max():g}" + "; make it uint8 if they are 0 to 255" * fraction
        )
    return np.ascontiguousarray((array * float(WHITE)).round() if fraction else array, np.uint8)


def _floats(what: str, numbers: ArrayLike, *, hint: str = "") -> Floats:
    array = np.asarray(numbers)
    if array.dtype.kind != "f":
        raise TypeError(f"{what} are an array of floats, not of {array.dtype}{hint}")
    return array.astype(np.float32, copy=False)
