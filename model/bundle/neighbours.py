"""Training images and their poses, with which `/neighbours` compares an image.

`model.views.neighbours` compares; `training.analysis.neighbours` makes the file.
"""

from __future__ import annotations

import dataclasses
import io
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field, InstanceOf
from pydantic.dataclasses import dataclass

from model.bundle.disk import Arrays
from model.bundle.entry import ENTRY

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
MAX_SHEET_PIXELS = 20_000_000
"""The sheet of thumbnails may have this many pixels."""
PROTOTYPES = 4
"""A class has at most so many prototypes."""


@dataclasses.dataclass(frozen=True, eq=False)
class PoseGallery(Arrays):
    """The poses of M class capsules in training images, and perhaps the images themselves.

    Raises:
        ValueError: the sizes of the arrays do not go together, or a number is not finite.
    """

    kinds = "f[iu][iu]fu[iu]ff"

    poses: NDArray[np.float16]
    """The poses (M, D), each of one class capsule of an image."""
    labels: NDArray[np.integer]
    """The labels of their classes, (M,)."""
    images: NDArray[np.integer]
    """The index of each pose's image in the sheet, (M,). A pair of digits has two poses."""
    whitening: NDArray[np.float16]
    """The whitening matrix W of each class, (K, D, D): W W^T is the inverse of its poses'
    covariance.
    """
    sheet: Bytes
    """A WebP file with all images side by side, row by row; empty where there are none."""
    prototypes: NDArray[np.integer]
    """The prototypes of each class, (K, P): rows of the class's poses; -1 where it has fewer."""
    shares: Floats
    """The share of the class's poses (K, P) to which this prototype is the nearest."""
    typical: Floats
    """The median distance of a pose to the nearest other one of its class, (K,)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        count, dim = self.poses.shape if self.poses.ndim == 2 else (0, 0)
        if not count or {self.labels.shape, self.images.shape} != {(count,)}:
            raise ValueError("poses (M, D), labels (M,) and images (M,) do not go together")
        if self.whitening.shape[1:] != (dim, dim) or self.sheet.ndim != 1:
            raise ValueError("whitening is not (K, D, D), or the sheet no file")
        if self.labels.min() < 0 or self.labels.max() >= len(self.whitening):
            raise ValueError("there is a label of no class")
        classes = len(self.whitening)
        if self.prototypes.shape != (classes, PROTOTYPES) or self.typical.shape != (classes,):
            raise ValueError(f"prototypes are not (K, {PROTOTYPES}), or typical is not (K,)")
        counts = np.bincount(self.labels.astype(np.int64), minlength=classes)
        if self.shares.shape != self.prototypes.shape or (self.prototypes >= counts[:, None]).any():
            raise ValueError("shares are not (K, P), or a prototype is no pose of its class")

    def of_class(self, label: int) -> Rows:
        """Return the positions of a class's poses."""
        return np.flatnonzero(self.labels == label)

    def check_sheet(self, image_shape: tuple[int, int, int]) -> None:
        """Check that the sheet, if there is one, can be read and has every image of the gallery.

        Raises:
            ValueError: it cannot be read, is too large, or lacks an image.
        """
        if not self.sheet.size:
            return
        _, height, width = image_shape
        try:
            with Image.open(io.BytesIO(self.sheet.tobytes()), formats=["WEBP"]) as file:
                columns, rows = file.width // width, file.height // height
        except (MemoryError, OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"the sheet of thumbnails cannot be read: {error}") from error
        if file.width * file.height > MAX_SHEET_PIXELS:
            raise ValueError(f"the sheet of thumbnails has more than {MAX_SHEET_PIXELS:,} pixels")
        if self.images.min() < 0 or self.images.max() >= columns * rows:
            raise ValueError("the sheet of thumbnails lacks an image of the gallery")

    def thumbnails(self, rows: Rows, image_shape: tuple[int, int, int]) -> Bytes:
        """Return the images (N, C, H, W) of some poses. The sheet must have images.

        Images of more than 3 channels have the three that figures show.
        """
        channels, height, width = image_shape
        channels = 1 if channels == 1 else 3
        with Image.open(io.BytesIO(self.sheet.tobytes()), formats=["WEBP"]) as file:
            pixels = np.asarray(file.convert("L" if channels == 1 else "RGB"))
        columns = pixels.shape[1] // width
        tiles = [
            pixels[
                (image // columns) * height : (image // columns + 1) * height,
                (image % columns) * width : (image % columns + 1) * width,
            ]
            for image in self.images[rows].tolist()
        ]
        stacked = np.stack(tiles).reshape(len(tiles), height, width, channels)
        return np.asarray(stacked.transpose(0, 3, 1, 2))


@dataclass(frozen=True, config=ENTRY)
class NeighbourImages:
    """A manifest's entry on the training images in a bundle."""

    images: str
    """The images' description, in words."""
    licence: str
    """The images' licence. Empty where none is known; then the bundle has their poses alone."""
    source: str
    gallery: Annotated[InstanceOf[PoseGallery] | None, Field(exclude=True)] = dataclasses.field(
        default=None, compare=False, repr=False
    )
    """The gallery, which has a file of its own next to the manifest."""
