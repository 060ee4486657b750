"""A folder of pictures by class, `folder/<class name>/**/*.png`, as a data set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from model.bundle.manifest import MAX_CHANNELS
from training.data.datasets import Dataset, Examples
from training.data.picture_content import (
    KINDS,
    SUFFIXES,
    UNREADABLE,
    Content,
    common_channels,
    look_at,
    open_content,
    to_bytes,
)
from training.data.picture_files import (
    PictureFiles,
    content_of,
    find_pictures,
    held_out_mask,
    join_names,
)
from training.data.picture_size import choose_size, describe_crop
from training.data.source import DatasetError
from training.data.words import to_ascii_name

_SLOW = 500
"""From this many images on a progress bar is shown."""
_FEW_GREY = 0.2
"""Up to this share of a class may be grey among coloured pictures."""

_T = TypeVar("_T")


class LoadedFolder(NamedTuple):
    """A folder of images by class, described as published data sets are, and its split."""

    dataset: Dataset
    training: Examples
    validation: Examples
    trained: tuple[str, ...]
    """Fingerprints of the training pictures, in the order of the images."""
    held_out: tuple[str, ...]
    """Fingerprints of the pictures that are held out, likewise."""
    notices: tuple[str, ...]
    """What the folder's owner should know: files that are not read, copies of pictures."""


def load_folder(
    folder: Path,
    *,
    seed: int,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    held_out_share: float = 0.1,
    seen: Collection[str] = (),
    held_out: Collection[str] = (),
    skip_unreadable: bool = False,
) -> LoadedFolder:
    """Read all pictures of all classes, each cropped and scaled as serving does it.

    Which pictures of a class are held out depends on the seed and on their names alone.

    Args:
        folder: has a folder of pictures for each class; hidden ones are passed over.
        size: the height and width of the images, in pixels; None lets the pictures decide
            (`choose_size`).
        channels: 1 makes all pictures grey, 3 makes all coloured; None lets the pictures decide.
            Arrays of other numbers of channels keep them.
        held_out_share: of each class that is kept for validation, more of few (`held_out_mask`); 0
            holds out nothing.
        seen: fingerprints of pictures that weights have learnt from; no picture of the same
            content is held out.
        held_out: fingerprints of the pictures to hold out, whatever the seed; none lets the seed
            decide.
        skip_unreadable: whether unreadable files are left out; otherwise they are an error.

    Raises:
        DatasetError: nothing can be learnt from the folder; the message says why, with names.
    """
    if channels is not None and not 1 <= channels <= MAX_CHANNELS:
        raise DatasetError(f"images have 1 to {MAX_CHANNELS} channels, not {channels}")
    found = find_pictures(folder, SUFFIXES, formats=KINDS)
    looks = _each(found.files, look_at, load=False)
    sizes = [look.size for look in looks.values()]
    height, width = size or (choose_size(sizes) if sizes else (1, 1))
    grey = {file: look.channels == 1 for file, look in looks.items()}
    channels = common_channels(looks.values(), channels)
    read = _read(list(looks), channels or 3, height, width)
    unreadable = [file for file in found.files if file not in read]
    found = found.without(unreadable)
    mixed = _Mixed() if channels or not read else _mix(read, found, grey)
    _refuse(
        found,
        unreadable=[] if skip_unreadable and read else unreadable,
        few=found.fewer_than(2 if held_out_share else 1),
        mixed=mixed.refused,
    )
    if channels is None and not mixed.coloured:
        read = _read(found.files, 1, height, width)
    images = np.stack(list(read.values()))
    notices = [f"skipped {_listed(found, unreadable)}"] * bool(unreadable)
    notices += mixed.notices
    labels = np.repeat(np.arange(len(found.classes)), [*map(len, found.classes.values())])
    prints = np.array([found.fingerprint(file) for file in found.files])
    if held_out:
        kept = np.isin(prints, list(held_out))
    else:
        kept = _hold_out(found, prints.tolist(), held_out_share, seed, seen)
    dataset = Dataset(
        name=name_of(folder),
        kind="pictures",
        image_shape=images.shape[1:],
        class_names=tuple(found.classes),
        preprocess="crop",
        held_out_count=int(kept.sum()),
    )
    training, validation = (Examples(images[rows], labels[rows]) for rows in (~kept, kept))
    trained, held = (tuple(prints[rows].tolist()) for rows in (~kept, kept))
    told = (found.describe_others(), describe_crop(sizes, height, width), _copies(trained, held))
    notices += [notice for notice in told if notice]
    return LoadedFolder(dataset, training, validation, trained, held, tuple(notices))


def name_of(folder: Path) -> str:
    """The folder's name as the name of a data set; `pictures` where no Latin letter is left."""
    return to_ascii_name(folder.resolve().name) or "pictures"


def _hold_out(
    found: PictureFiles, prints: Sequence[str], share: float, seed: int, seen: Collection[str]
) -> NDArray[np.bool_]:
    """Which pictures (N,) are held out. DatasetError where none is, as all are seen."""
    contents = {content_of(fingerprint) for fingerprint in seen}
    places = [found.place(file) for file in found.files]
    known = {
        place
        for place, fingerprint in zip(places, prints, strict=True)
        if content_of(fingerprint) in contents
    }
    kept = [
        mark
        for files in found.classes.values()
        for mark in held_out_mask([*map(found.place, files)], share, seed, seen=known)
    ]
    if share and not any(kept):
        raise DatasetError(
            f"the weights have learnt from all pictures of {found.folder}, so that none can be "
            "held out: add new ones, or train with --final"
        )
    return np.array(kept)


def _copies(trained: Sequence[str], held_out: Sequence[str]) -> str | None:
    """How many held-out pictures are copies of training pictures, in a sentence."""
    contents = {content_of(fingerprint) for fingerprint in trained}
    copies = sum(content_of(fingerprint) in contents for fingerprint in held_out)
    if not copies:
        return None
    return (
        f"{copies:,} of {len(held_out):,} held-out pictures have the content of a picture that is "
        "trained on: remove copies, or the error on held-out pictures is too low"
    )


def _refuse(
    found: PictureFiles, *, unreadable: Sequence[Path], few: Sequence[str], mixed: str
) -> None:
    """Refuse a folder with all that is wrong with it, and with the options that go on."""
    wrong, options = list[str](), list[str]()
    if unreadable:
        wrong.append(f"unreadable: {_listed(found, unreadable)}")
        options.append("--skip-unreadable")
    if few:
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


def _listed(found: PictureFiles, files: Sequence[Path]) -> str:
    """How many files, and which, each on a line."""
    places = "".join(f"\n  {found.place(file)}" for file in files)
    return f"{len(files):,} file{'s' * bool(files[1:])} that cannot be read as pictures:{places}"


class _Mixed(NamedTuple):
    """Whether pictures have colour, and what follows where some are grey by their format."""

    coloured: bool = True
    notices: tuple[str, ...] = ()
    refused: str = ""


def _mix(
    read: Mapping[Path, NDArray[np.uint8]], found: PictureFiles, grey: Mapping[Path, bool]
) -> _Mixed:
    """Decide between grey and colour for pictures (3, H, W), some of which may be grey.

    Files that are not grey by their format may be so nevertheless, as photographs in black and
    white among coloured ones are. A few grey files in a class are taken as coloured. Where they
    are more, being grey would tell the class, so their owner decides.
    """
    coloured = [file for file, image in read.items() if (image != image[:1]).any()]
    scans = [file for file in found.files if grey[file]]
    if not coloured or not scans:
        return _Mixed(bool(coloured))
    named = f"{len(scans):,} grey ({join_names([*map(found.place, scans)])})"
    most = max(
        sum(grey[file] for file in files) / len(files) for files in found.classes.values() if files
    )
    if most <= _FEW_GREY:
        return _Mixed(notices=(f"{named} pictures among coloured ones: taken as coloured",))
    return _Mixed(refused=f"{named} and {len(coloured):,} coloured pictures are mixed")


def _read(
    files: Sequence[Path], channels: int, height: int, width: int
) -> dict[Path, NDArray[np.uint8]]:
    """The pictures (C, H, W) as the network sees them, without those that cannot be read."""
    return _each(files, lambda own: to_bytes(own, channels, height, width), load=True)


def _each(files: Sequence[Path], look: Callable[[Content], _T], *, load: bool) -> dict[Path, _T]:
    """Call `look` with each image, loaded or only opened; what cannot be read is left out."""
    results, verb = dict[Path, _T](), "reading" if load else "looking at"
    for file in track(files, f"{verb} {len(files):,} pictures", disable=len(files) < _SLOW):
        try:
            picture = open_content(file, load=load)
        except UNREADABLE:
            continue
        results[file] = look(picture)
    return results
