"""A folder of pictures by class, `folder/<class name>/**/*.png`: to learn from, or to score."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import compress
from pathlib import Path
from statistics import median_low
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from model.bundle import Manifest
from model.bundle.manifest import MAX_CHANNELS
from model.loaded import fit_picture
from model.preprocess import WHITE
from training.data.datasets import DATASETS, Dataset, Examples
from training.data.pictures import (
    PictureFiles,
    content_of,
    digest_content,
    find_pictures,
    header_of,
    join_names,
    read_each,
    to_ascii_name,
    to_bytes,
)
from training.data.source import DatasetError

KEPT_PX = 96
"""Pictures keep their size up to this many pixels along the longer side; larger ones are shrunk."""
MAX_RATIO = 2
"""The longer side of a network's image is at most so many times the shorter one, by default."""
_FEW_GREY = 0.2
"""Up to this share of a class may be grey among coloured pictures."""
_HELD_OUT_SHARE, _MIN_HELD_OUT = 0.1, 4
"""This share of the images of a class is held out, but at least so many images."""
_CROPPED = 1 / 3
"""The share of a picture that may be cropped without a notice."""


class FolderSplit(BaseModel):
    """A folder of pictures and how it is divided, so that it can be read again in the same way."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    folder: str = ""
    class_names: tuple[str, ...] = ()
    learnt: tuple[str, ...] = ()
    """Fingerprints of the pictures that the weights have learnt from, in this run or an earlier one
    whose weights it took."""
    held_out_pictures: tuple[str, ...] = ()
    """Fingerprints of the pictures that are held out."""
    skip_unreadable: bool = False
    """Whether unreadable files are left out."""
    class_counts: tuple[int, ...] = ()
    """The number of training pictures of each class."""

    def is_same(self, other: FolderSplit | None) -> bool:
        """Whether both have the same classes, held-out pictures and number of training pictures."""
        return (
            other is not None
            and self.class_names == other.class_names
            and self.held_out_pictures == other.held_out_pictures
            and sum(self.class_counts) == sum(other.class_counts)
        )

    def uses(self) -> dict[str, str]:
        """What training did with pictures, by the hash of their content."""
        held_out = dict.fromkeys(map(content_of, self.held_out_pictures), "held out")
        return held_out | dict.fromkeys(map(content_of, self.learnt), "learnt from")


UNSPLIT = FolderSplit()


class TrainingData(NamedTuple):
    """The images to learn from, published or of a folder, and those held out."""

    dataset: Dataset
    training: Examples
    validation: Examples
    """The last ones, or in a folder those of each class that a hash of their names chose."""
    split: FolderSplit | None = None
    """The folder of images; None where the data set is published."""
    notices: tuple[str, ...] = ()
    """What the folder's owner should know: files that are not read, copies of pictures."""

    def without_validation(self) -> TrainingData:
        """All images to learn from, for a final run."""
        both = (self.training, self.validation)
        images = np.concatenate([examples.images for examples in both])
        training = Examples(images, np.concatenate([examples.labels for examples in both]))
        if not self.split:
            return self._replace(training=training)
        learnt = (*self.split.learnt, *self.split.held_out_pictures)
        split = self.split.model_copy(update={"learnt": learnt})
        return self._replace(training=training, split=split)


def load_folder(
    folder: Path,
    *,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    seen: Collection[str] = (),
    split: FolderSplit = UNSPLIT,
) -> TrainingData:
    """Read all pictures of all classes, each cropped and scaled as serving does it.

    Which pictures of a class are held out depends on their names alone.

    Args:
        folder: has a folder of pictures for each class; hidden ones are passed over.
        size: the height and width of the images, in pixels; None lets the pictures decide
            (`choose_size`).
        channels: 1 makes all pictures grey, 3 makes all coloured; None lets the pictures decide.
            Arrays of other numbers of channels keep them.
        seen: fingerprints of pictures that weights have learnt from; no picture of the same
            content is held out.
        split: an earlier one of this folder, which is used again, or only whether unreadable files
            are skipped.

    Raises:
        DatasetError: nothing can be learnt from the folder; the message says why, with names.
    """
    found = find_pictures(folder)
    headers = read_each(found.files, header_of, load=False)
    sizes = [size for size, _ in headers.values()]
    height, width = size or (choose_size(sizes) if sizes else (1, 1))
    decided = _channels_of({number for _, number in headers.values()}, channels)
    read = read_each([*headers], lambda own: to_bytes(own, decided or 3, height, width))
    unreadable = [file for file in found.files if file not in read]
    found = found.without(unreadable)
    images = np.stack(list(read.values())) if read else np.zeros((0, 1, 1, 1), np.uint8)
    few_grey, mixed = "", ""
    if decided is None and read:
        coloured = (images != images[:, :1]).any(axis=(1, 2, 3))
        grey_files = [file for file in read if headers[file][1] == 1]
        if not coloured.any():
            images = images[:, :1]
        elif grey_files:
            few_grey, mixed = _describe_mix(found, grey_files, int(coloured.sum()))
    _refuse(found, unreadable=[] if split.skip_unreadable and read else unreadable, mixed=mixed)
    labels = np.repeat(np.arange(len(found.classes)), [*map(len, found.classes.values())])
    prints = {file: found.fingerprint(file) for file in found.files}
    held_out = set(split.held_out_pictures) or _hold_out(found, prints, seen)
    marks = np.array([one in held_out for one in prints.values()])
    training, validation = (Examples(images[rows], labels[rows]) for rows in (~marks, marks))
    trained, held = ([*compress(prints.values(), rows)] for rows in (~marks, marks))
    notices = (
        f"skipped {found.describe_unreadable(unreadable)}" * bool(unreadable),
        few_grey,
        found.describe_others(),
        describe_crop(sizes, height, width),
        _describe_copies(trained, held),
    )
    dataset = Dataset(
        name=name_of(folder),
        kind="pictures",
        image_shape=images.shape[1:],
        class_names=tuple(found.classes),
        preprocess="crop",
    )
    own_split = FolderSplit(
        folder=str(folder.resolve()),
        class_names=dataset.class_names,
        learnt=tuple(dict.fromkeys((*trained, *seen, *split.learnt))),
        held_out_pictures=tuple(held),
        skip_unreadable=split.skip_unreadable,
        class_counts=tuple(np.bincount(training.labels, minlength=len(found.classes)).tolist()),
    )
    return TrainingData(dataset, training, validation, own_split, tuple(filter(None, notices)))


def load_unseen(
    manifest: Manifest, folder: Path, *, skip_unreadable: bool = False
) -> tuple[Examples, tuple[str, ...]]:
    """Read a folder of pictures by class as the service reads them.

    Pictures whose content training saw are left out: those trained on, and those held out, which
    chose the weights.

    Args:
        skip_unreadable: whether unreadable files are left out; otherwise they are an error.

    Returns:
        the pictures, with the labels of the bundle's classes, and what was left out, and why.

    Raises:
        DatasetError: a folder is no class of the bundle, a file cannot be read, or training saw
            all pictures.
    """
    found = find_pictures(folder, classes=1)
    if unknown := [name for name in found.classes if name not in manifest.class_names]:
        raise DatasetError(
            f"{join_names(unknown)} in {folder}: no class of {manifest.name}, whose classes are "
            f"{', '.join(manifest.class_names)}"
        )
    uses = FolderSplit(**(manifest.training.get("pictures") or {})).uses()
    used = {file: use for file in found.files if (use := uses.get(digest_content(file)))}
    kept = found.without(used)
    if not kept.files:
        raise DatasetError(f"training saw all {len(used):,} pictures of {folder}")
    read = read_each(
        kept.files, lambda file: np.rint(fit_picture(manifest, file).image * WHITE).astype(np.uint8)
    )
    unreadable = [file for file in kept.files if file not in read]
    if unreadable and not (skip_unreadable and read):
        advice = "\nTo go on, add --skip-unreadable" * bool(read)
        raise DatasetError(f"{folder} has {kept.describe_unreadable(unreadable)}{advice}")
    notices = list[str]()
    for use in dict.fromkeys(used.values()):
        places = [found.place(file) for file in used if used[file] == use]
        count = f"{len(places):,} picture{'s' * bool(places[1:])}"
        notices.append(f"left out {count} that training {use}: {join_names(places)}")
    notices += [
        f"skipped {kept.describe_unreadable(unreadable)}" * bool(unreadable),
        kept.describe_others(),
    ]
    labels = [
        manifest.class_names.index(name)
        for name, files in kept.without(unreadable).classes.items()
        for _ in files
    ]
    images, files = np.stack([*read.values()]), np.array([*map(kept.place, read)])
    return Examples(images, np.array(labels), places=files), tuple(filter(None, notices))


def name_of(folder: Path) -> str:
    """The folder's name as that of its data set, which no published one has.

    It is `pictures` where no letter is left.
    """
    name = to_ascii_name(folder.resolve().name) or "pictures"
    return f"{name}-folder" if name in DATASETS else name


def choose_size(sizes: Collection[tuple[int, int]]) -> tuple[int, int]:
    """Choose the (height, width) at which a network sees pictures of these (width, height).

    Pictures of one size keep it, or are shrunk until their longer side has KEPT_PX pixels. Those
    that are more oblong than MAX_RATIO are cropped to it. Pictures of several sizes become squares:
    the median of their shorter sides, at most KEPT_PX pixels.
    """
    if len(counts := Counter(sizes)) > 1:
        side = min(KEPT_PX, median_low(min(size) for size in sizes))
        return side, side
    ((width, height),) = counts
    width, height = min(width, MAX_RATIO * height), min(height, MAX_RATIO * width)
    factor = min(1.0, KEPT_PX / max(width, height))
    return max(1, round(height * factor)), max(1, round(width * factor))


def describe_crop(sizes: Sequence[tuple[int, int]], height: int, width: int) -> str:
    """How much of the median picture is cropped, in a sentence; empty up to a third.

    Args:
        sizes: the (width, height) of the pictures, which are cropped to the network's image.
        height: of the network's image.
        width: likewise.
    """
    ratio = width / height
    kept = [min(own[0] / own[1], ratio) / max(own[0] / own[1], ratio) for own in sizes]
    lost = 1 - median_low(kept)
    if lost <= _CROPPED:
        return ""
    return (
        f"pictures are cropped around their centre to {width}x{height} px, and half of them lose "
        f"{100 * lost:.0f} % or more: --set network.height=H --set network.width=W chooses another "
        "shape"
    )


def _channels_of(present: Collection[int], asked: int | None) -> int | None:
    """The channels of all images, by those of their files; None if pixels decide on colour.

    Raises:
        DatasetError: arrays differ, or files cannot have the channels that were asked for.
    """
    if asked is not None and not 1 <= asked <= MAX_CHANNELS:
        raise DatasetError(f"images have 1 to {MAX_CHANNELS} channels, not {asked}")
    if set(present) <= {1, 3}:
        if asked not in (None, 1, 3):
            raise DatasetError(f"pictures have 1 channel or 3, not {asked}")
        return 1 if set(present) == {1} and asked is None else asked
    if len(present) > 1 or asked not in (None, *present):
        numbers = " and ".join(map(str, sorted(present)))
        raise DatasetError(f"arrays of {numbers} channels cannot all have {asked or 'the same'}")
    return next(iter(present))


def _describe_mix(
    found: PictureFiles, grey_files: Sequence[Path], coloured: int
) -> tuple[str, str]:
    """A notice, or else a reason to refuse, where some files are grey among coloured pictures.

    A few grey files in a class are taken as coloured. Where they are more, being grey would tell
    the class, so their owner decides.
    """
    named = f"{len(grey_files):,} grey ({join_names([*map(found.place, grey_files)])})"
    shares = [
        len({*files} & {*grey_files}) / len(files) for files in found.classes.values() if files
    ]
    if max(shares) <= _FEW_GREY:
        return f"{named} pictures among coloured ones: taken as coloured", ""
    return "", f"{named} and {coloured:,} coloured pictures are mixed"


def _refuse(found: PictureFiles, *, unreadable: Sequence[Path], mixed: str) -> None:
    """Refuse a folder with all that is wrong with it, and with the options that go on."""
    wrong, options = list[str](), list[str]()
    if unreadable:
        wrong.append(f"unreadable: {found.describe_unreadable(unreadable)}")
        options.append("--skip-unreadable")
    if few := [name for name, files in found.classes.items() if len(files) < 2]:
        wrong.append(
            f"too few pictures to learn from some and hold out others: {join_names(few)}. Add "
            "some, or move these folders away"
        )
    if mixed:
        wrong.append(mixed)
        options.append("--channels 3 (or --channels 1, which makes all pictures grey)")
    if wrong:
        advice = f"\nTo go on, add {' '.join(options)}" * bool(options)
        raise DatasetError(f"{found.folder} cannot be learnt from:\n" + "\n".join(wrong) + advice)


def _hold_out(found: PictureFiles, prints: Mapping[Path, str], seen: Collection[str]) -> set[str]:
    """The fingerprints of the pictures that are held out; none of them is of a seen content.

    That is a fifth of up to 20 pictures of a class, 4 of 21 to about 40, a tenth of more. Which
    ones depends on their places alone; at least one is not held out.

    Raises:
        DatasetError: none is, as all are seen.
    """
    contents, held_out = set(map(content_of, seen)), set[str]()

    def number(file: Path) -> bytes:
        return hashlib.sha256(f"0/{found.place(file)}".encode()).digest()

    for files in found.classes.values():
        few = min(_MIN_HELD_OUT, len(files) / 5)
        count = min(max(1, round(max(few, _HELD_OUT_SHARE * len(files)))), len(files) - 1)
        free = [file for file in files if content_of(prints[file]) not in contents]
        held_out.update(prints[file] for file in sorted(free, key=number)[:count])
    if not held_out:
        raise DatasetError(
            f"the weights have learnt from all pictures of {found.folder}, so that none can be "
            "held out: add new ones, or train with --final"
        )
    return held_out


def _describe_copies(trained: Sequence[str], held_out: Sequence[str]) -> str:
    """How many held-out pictures are copies of training pictures, in a sentence."""
    contents = {content_of(fingerprint) for fingerprint in trained}
    copies = sum(content_of(fingerprint) in contents for fingerprint in held_out)
    if not copies:
        return ""
    return (
        f"{copies:,} of {len(held_out):,} held-out pictures have the content of a picture that is "
        "trained on: remove copies, or the error on held-out pictures is too low"
    )
