"""A folder of pictures by class, `folder/<class name>/*.png`, as a data set."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.progress import track

from model.preprocess import crop
from model.preprocess.pixels import turn_upright
from training.data.datasets import Dataset, Examples
from training.data.picture_size import choose_size
from training.data.source import DatasetError

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"})
"""The suffixes of files that are read, in any case. Other files are ignored."""
SMALL_FOLDER = 2000
"""A folder with fewer images is small: its network is expected to learn less."""
LEAST_HELD_OUT = 4
"""At least this many images of a class are held out, even if that exceeds its share."""
_SLOW = 500
"""From this many images on a progress bar is shown."""
_FAULTS = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""The exceptions that Pillow raises for files that are not whole images."""
_GREY_MODES = frozenset({"1", "L", "LA", "I", "I;16"})

_T = TypeVar("_T")


class LoadedFolder(NamedTuple):
    """A folder of images by class, described as published data sets are, and its split."""

    dataset: Dataset
    training: Examples
    validation: Examples


def load_folder(
    folder: Path,
    *,
    seed: int,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    held_out_share: float = 0.1,
) -> LoadedFolder:
    """Read all pictures of all classes, each cropped and scaled as serving does it.

    Which pictures of a class are held out depends on the seed and on their names alone.

    Args:
        folder: has a folder of pictures for each class; hidden ones are passed over.
        size: the height and width of the images, in pixels; None lets the pictures decide
            (`choose_size`).
        channels: 1 makes all pictures grey, 3 makes all coloured; None lets the pictures decide.
        held_out_share: of each class that is kept for validation, more of few (`held_out_mask`); 0
            holds out nothing.

    Raises:
        DatasetError: nothing can be learnt from the folder; the message says why, with names.
    """
    if channels not in (None, 1, 3):
        raise DatasetError(f"images have 1 channel or 3, not {channels}")
    classes = _find(folder, least=2 if held_out_share else 1)
    files = [file for pictures in classes.values() for file in pictures]
    headers = _each(
        files, lambda picture: (turn_upright(picture).size, picture.mode), "looking", load=False
    )
    height, width = size or choose_size(own for own, _ in headers)
    grey = [mode in _GREY_MODES for _, mode in headers]
    if channels is None and all(grey):
        channels = 1
    images = _read(files, channels or 3, height, width)
    if channels is None and not _coloured(images, grey, files):
        images = _read(files, 1, height, width)
    labels = np.repeat(np.arange(len(classes)), [len(pictures) for pictures in classes.values()])
    kept = np.array(
        [mark for few in classes.values() for mark in held_out_mask(few, held_out_share, seed)]
    )
    dataset = Dataset(
        name=_name(folder),
        kind="pictures",
        image_shape=images.shape[1:],
        class_names=tuple(classes),
        preprocess="crop",
        held_out_count=int(kept.sum()),
    )
    training, validation = (Examples(images[rows], labels[rows]) for rows in (~kept, kept))
    return LoadedFolder(dataset, training, validation)


def count_pictures(folder: Path) -> int:
    """Count the images of all classes of a folder, without opening them.

    Raises:
        DatasetError: there are not two classes, or too few pictures of one.
    """
    return sum(len(files) for files in _find(folder, least=2).values())


def digest_names(folder: Path) -> str:
    """The SHA-256 of the sorted relative names of the pictures of all classes.

    Raises:
        DatasetError: there are not two classes, or no pictures of one.
    """
    files = [file for pictures in _find(folder, least=1).values() for file in pictures]
    return hashlib.sha256("\0".join(sorted(map(_place, files))).encode()).hexdigest()


def _find(folder: Path, *, least: int) -> dict[str, list[Path]]:
    """The picture files of each class, both in the order of their names."""
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder")
    classes = {
        path.name: sorted(
            file
            for file in path.iterdir()
            if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
        )
        for path in sorted(folder.iterdir())
        if path.is_dir() and not path.name.startswith(".")
    }
    if len(classes) < 2:
        present = f"only one, {next(iter(classes))}" if classes else "none"
        raise DatasetError(
            f"{folder} needs a folder for each of at least two classes, and has {present}"
        )
    if empty := [name for name, files in classes.items() if not files]:
        raise DatasetError(f"{folder} has no pictures ({', '.join(FORMATS)}) in {_list(empty)}")
    if rare := [name for name, files in classes.items() if len(files) < least]:
        raise DatasetError(
            f"{folder} needs at least {least} pictures of each class, to train on and to hold out, "
            f"and has fewer of {_list(rare)}"
        )
    return classes


def _read(files: Sequence[Path], channels: int, height: int, width: int) -> NDArray[np.uint8]:
    """All pictures (N, C, H, W) as the network sees them."""

    def to_bytes(picture: Image.Image) -> NDArray[np.uint8]:
        return np.rint(crop(picture, channels, height, width) * 255).astype(np.uint8)

    return np.stack(_each(files, to_bytes, "reading", load=True))


def _each(
    files: Sequence[Path], look: Callable[[Image.Image], _T], verb: str, *, load: bool
) -> list[_T]:
    """Call `look` with each image, loaded or only opened; DatasetError if it fails for some."""
    results, unreadable = [], []
    for file in track(files, f"{verb} {len(files):,} pictures", disable=len(files) < _SLOW):
        with ExitStack() as stack:
            try:
                picture = stack.enter_context(Image.open(file, formats=FORMATS))
                if load:
                    picture.load()
                    if picture.mode == "P" and picture.palette is None:
                        raise ValueError("the palette is missing")
            except _FAULTS:
                unreadable.append(_place(file))
                continue
            results.append(look(picture))
    if unreadable:
        kind = "pictures" if unreadable[1:] else "a picture"
        raise DatasetError(f"{_list(unreadable)} cannot be read as {kind}")
    return results


def _coloured(images: NDArray[np.uint8], grey: Sequence[bool], files: Sequence[Path]) -> bool:
    """Return whether images (N, 3, H, W) have colour; False where all are grey.

    Files that are not grey by their format may be so nevertheless, as photographs in black and
    white among coloured ones are. DatasetError where some are coloured and some formats are grey.
    """
    coloured = (images != images[:, :1]).any(axis=(1, 2, 3))
    if not coloured.any():
        return False
    if any(grey):
        raise DatasetError(
            f"{_place(files[grey.index(True)])} is grey and {_place(files[coloured.argmax()])} is "
            "coloured: choose --channels 1, which makes all pictures grey, or --channels 3"
        )
    return True


def held_out_mask(files: Sequence[Path], share: float = 0.1, seed: int = 0) -> list[bool]:
    """Choose the images of a class that are held out: a share, but a fifth of up to 20, 4.

    Which ones depends on the seed and on their names alone; one at least is not held out.
    """
    if not share:
        return [False] * len(files)
    few = min(LEAST_HELD_OUT, len(files) / 5)
    count = min(max(1, round(max(few, share * len(files)))), len(files) - 1)
    numbers = [hashlib.sha256(f"{seed}/{_place(file)}".encode()).digest() for file in files]
    last = sorted(numbers)[count - 1]
    return [number <= last for number in numbers]


def _name(folder: Path) -> str:
    """The folder's name as the name of a data set."""
    return "-".join(re.findall(r"[a-z0-9]+", folder.resolve().name.lower())) or "pictures"


def _place(file: Path) -> str:
    """A picture's class and name."""
    return f"{file.parent.name}/{file.name}"


def _list(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    shown, more = names[:3], len(names) - 3
    if more > 0:
        return f"{', '.join(shown)} and {more:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown)
