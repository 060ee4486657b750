"""What a bundle keeps of the poses of training images, in files of arrays next to its manifest.

`model.views.novelty` judges images by the Gaussians, and `model.views.neighbours` compares them
with the gallery.
"""

from __future__ import annotations

import dataclasses
import io
import re
from pathlib import Path
from typing import Annotated, BinaryIO, ClassVar, Self
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field, InstanceOf, model_validator
from pydantic.dataclasses import dataclass

from model.bundle.disk import open_file
from model.bundle.entry import ENTRY, Rising, Share, check_rising

NOVELTY, NEIGHBOURS = "novelty.npz", "neighbours.npz"
"""The files of `PoseGaussians` and `PoseGallery`."""
MAX_ARRAYS_BYTES = 100_000_000
"""The arrays of one file may have this many bytes together, inflated."""
MAX_SHEET_PIXELS = 20_000_000
"""The sheet of thumbnails may have this many pixels."""
PROTOTYPES = 4
"""A class has at most so many prototypes."""
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class Arrays:
    """Arrays that have a file of their own next to a manifest. Each field is an array.

    Raises:
        ValueError: a number is of another kind, or not finite.
    """

    kinds: ClassVar[str]
    """A pattern of the kinds of the arrays' numbers, in numpy's letters."""

    def __post_init__(self) -> None:
        arrays = vars(self).values()
        if not re.fullmatch(self.kinds, "".join(array.dtype.kind for array in arrays)):
            raise ValueError("an array has numbers of another kind")
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError("a number is not finite")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            ValueError: it is something else, lacks an array, or has more than `MAX_ARRAYS_BYTES`.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        try:
            with open_file(path) as file, ZipFile(file) as archive:
                size = sum(member.file_size for member in archive.infolist())
                if size > MAX_ARRAYS_BYTES:
                    raise ValueError(f"its arrays have more than {MAX_ARRAYS_BYTES:,} bytes")  # noqa: TRY301  as what it raises itself
                # `zipfile` inflates at most the bytes that the archive announces.
                files = (archive.open(f"{name}.npy") for name in names)
                return cls(*(np.lib.format.read_array(file, allow_pickle=False) for file in files))
        except Exception as error:  # zipfile and numpy raise fourteen kinds for broken files
            reason = f"{path.name}: it is no .npz file of {', '.join(names)}: {error}"
            raise ValueError(reason) from error

    def save(self, file: BinaryIO) -> None:
        """Write an .npz file."""
        np.savez_compressed(file, **vars(self))


@dataclasses.dataclass(frozen=True, eq=False)
class PoseGaussians(Arrays):
    """The Gaussians of training images' poses: one for each class, all with the same covariance.

    Raises:
        ValueError: the sizes of the arrays do not go together, or a number is not finite.
    """

    kinds = "ff"

    means: Floats
    """The mean poses of all classes, for each most present class, (K, K * D)."""
    whitening: NDArray[np.float16]
    """The whitening matrix W (K * D, K * D): W W^T is the inverse of the covariance, up to a
    factor.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.means.ndim != 2 or self.whitening.shape != (self.means.shape[1],) * 2:
            raise ValueError("means (K, K * D) and whitening (K * D, K * D) do not go together")


@dataclass(frozen=True, config=ENTRY)
class NoveltyRule:
    """The rule of one bundle: each feature's quantiles, and the threshold of the lowest rank."""

    quantiles: Annotated[tuple[Share, ...], Field(min_length=2)]
    """The quantiles' shares, rising from 0 to 1."""
    length: Rising
    """The length at each quantile."""
    margin: Rising
    """The margin at each quantile."""
    error: Rising
    """The error at each quantile."""
    threshold: Share
    """An image is novel if its lowest rank is below."""
    images: str
    """The images that the rule was fitted on, in words."""
    others: tuple[dict[str, float | int | str], ...] = ()
    """The scores of images of other kinds: kind, images and known_percent; and auc, compared with
    `typical` images that the network has not learnt."""
    test_novel_percent: float | None = None
    """The percentage of the data set's own test images that are novel: false alarms."""
    threshold_images: str = ""
    """The images that set the threshold, in words; empty where they are half of `images`."""
    distance: Rising = ()
    """The distance at each quantile. It is empty where the bundle has no Gaussians."""
    gaussians: Annotated[InstanceOf[PoseGaussians] | None, Field(exclude=True)] = dataclasses.field(
        default=None, compare=False, repr=False
    )
    """The Gaussians that distances are measured from. They have a file of their own."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        tables = [self.quantiles, self.length, self.margin, self.error]
        tables += [self.distance] if self.distance else []
        if len({len(table) for table in tables}) > 1:
            raise ValueError("the tables of the novelty rule differ in size")
        check_rising(*tables)
        if self.gaussians and not self.distance:
            raise ValueError("the novelty rule has no table of distances")
        return self


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
