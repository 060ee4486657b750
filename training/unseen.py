"""A folder of pictures by class that a network is tested on, without those that training saw."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from model.preprocess import WHITE
from model.runtime import Runtime
from training.data.datasets import Examples
from training.data.pictures import digest_content, find_pictures, join_names, read_each
from training.data.source import DatasetError
from training.training_data import FolderSplit


class UnseenPictures(NamedTuple):
    """Pictures as the network sees them, with the labels of its classes."""

    examples: Examples
    places: tuple[str, ...]
    """The class and name of each picture."""
    notices: tuple[str, ...]
    """What was left out, and why."""
    unseen: bool
    """Whether the bundle knows that training saw none of them."""


def load_unseen(runtime: Runtime, folder: Path, *, skip_unreadable: bool = False) -> UnseenPictures:
    """Read a folder of pictures by class as the service reads them.

    Pictures whose content training saw are left out: those trained on, and those held out, which
    chose the weights.

    Args:
        skip_unreadable: whether unreadable files are left out; otherwise they are an error.

    Raises:
        DatasetError: a folder is no class of the bundle, a file cannot be read, or training saw
            all pictures.
    """
    manifest = runtime.bundle.manifest
    names, known = manifest.class_names, manifest.training.get("pictures")
    found = find_pictures(folder, classes=1)
    if unknown := [name for name in found.classes if name not in names]:
        raise DatasetError(
            f"{join_names(unknown)} in {folder}: no class of {manifest.name}, whose classes are "
            f"{', '.join(names)}"
        )
    uses = FolderSplit(**known).uses() if known else {}
    labelled = [
        (file, names.index(name)) for name, files in found.classes.items() for file in files
    ]
    kept, left_out = dict[Path, int](), dict[str, list[str]]()
    for file, label in labelled:
        if use := uses.get(digest_content(file)):
            left_out.setdefault(use, []).append(found.place(file))
        else:
            kept[file] = label
    notices = [
        f"left out {len(places):,} picture{'s' * bool(places[1:])} that training {use}: "
        f"{join_names(places)}"
        for use, places in left_out.items()
    ]
    if not kept:
        raise DatasetError(f"training saw all {len(labelled):,} pictures of {folder}")
    images = read_each(
        [*kept], lambda picture: np.rint(runtime.prepare(picture)[0] * WHITE).astype(np.uint8)
    )
    if unreadable := [file for file in kept if file not in images]:
        described = found.describe_unreadable(unreadable)
        if not (skip_unreadable and images):
            advice = "\nTo go on, add --skip-unreadable" * bool(images)
            raise DatasetError(f"{folder} has {described}{advice}")
        notices.append(f"skipped {described}")
    if others := found.describe_others():
        notices.append(others)
    labels = np.array([kept[file] for file in images])
    places = tuple(map(found.place, images))
    examples = Examples(np.stack([*images.values()]), labels)
    return UnseenPictures(examples, places, tuple(notices), bool(uses))
