"""The picture files of a folder by class: which there are, how each is read and known again."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from anyascii import anyascii
from numpy.typing import NDArray
from PIL import Image
from rich.progress import track

from model.errors import Problem
from model.preprocess import Floats, load_image, open_image, scale_picture
from model.preprocess.header import FORMATS
from model.preprocess.pixels import turn_upright
from training.data.source import DatasetError

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves a terminal's cursor, starts a line or reorders text."""
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".npy"})
"""The suffixes of files that are read, in any case."""
_UNREADABLE = (OSError, Problem)
"""The exceptions for files that are not whole pictures, or that the service refuses."""
_GREY_MODES = frozenset({"1", "L", "LA", "La", "I;16", "I;16B"})
_HEX = 12
"""The length of a hash of a name or of a content, in hexadecimal digits."""
_SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval"}
"""Folders of these names are parts of a data set, if they have folders."""
_SLOW = 500
"""From this many pictures on a progress bar is shown."""
_T = TypeVar("_T")
Content = Image.Image | Floats
"""An image, or an array (H, W, C) in [0, 1]."""


def to_ascii_name(text: str) -> str:
    """Return a text in lower-case letters a to z and digits, with `-` between words.

    Letters of all scripts are transliterated, and accents are dropped: "Meine Äpfel" is
    `meine-apfel`, "Мои фигуры" is `moi-figury`.
    """
    latin = anyascii(unicodedata.normalize("NFC", text)).lower()
    return "-".join(re.findall("[a-z0-9]+", latin.replace("'", "")))


def printable(text: str) -> str:
    r"""Return a text whose control characters are written as escapes, such as `\x1b`.

    A name of a file may hold any, and a terminal would obey them.
    """
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], text)


@dataclass(frozen=True)
class PictureFiles:
    """The files of a folder, `folder/<class name>/**/*.png`."""

    folder: Path
    classes: Mapping[str, tuple[Path, ...]]
    """The pictures of each class, both in the order of their names."""
    others: tuple[Path, ...]
    """Files that are no pictures, and pictures that lie in no class. Hidden files are left out."""

    @property
    def files(self) -> list[Path]:
        """The pictures of all classes."""
        return [file for files in self.classes.values() for file in files]

    def place(self, file: Path) -> str:
        """A file's path within the folder: its class and name, fit to be printed."""
        return printable(file.relative_to(self.folder).as_posix())

    def fingerprint(self, file: Path) -> str:
        """Hashes of a picture's place and of its content, by which it is known again."""
        return _hash(self.place(file).encode()) + digest_content(file)

    def without(self, left_out: Collection[Path]) -> PictureFiles:
        """The same files without some."""
        classes = {
            name: tuple(file for file in files if file not in left_out)
            for name, files in self.classes.items()
        }
        return PictureFiles(self.folder, classes, self.others)

    def describe_others(self) -> str:
        """What is not read, in a sentence; empty where there is no such file."""
        if not self.others:
            return ""
        kinds = Counter(printable(file.suffix.lower()) or "without suffix" for file in self.others)
        counts = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
        named = join_names([self.place(file) for file in self.others])
        return f"not read, as no pictures of a class: {counts} ({named})"

    def describe_unreadable(self, files: Sequence[Path]) -> str:
        """How many files cannot be read, and which, each on a line."""
        places = "".join(f"\n  {self.place(file)}" for file in files)
        return (
            f"{len(files):,} file{'s' * bool(files[1:])} that cannot be read as pictures:{places}"
        )


def find_pictures(folder: Path, *, classes: int = 2) -> PictureFiles:
    """Find the pictures of all classes, without opening them; sub-folders of a class belong to it.

    Args:
        classes: the fewest classes.

    Raises:
        DatasetError: there are fewer classes, one has no pictures, or the folder holds several data
            sets.
    """
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder")
    found, others = dict[str, tuple[Path, ...]](), list[Path]()
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if not path.is_dir():
            others.append(path)
            continue
        files = list(_walk(path))
        found[path.name] = tuple(file for file in files if file.suffix.lower() in SUFFIXES)
        others += [file for file in files if file.suffix.lower() not in SUFFIXES]
    if odd := [printable(name) for name in found if printable(name) != name]:
        raise DatasetError(f"{folder} has classes with control characters: {join_names(odd)}")
    if len(found) < classes:
        present = f"only one, {next(iter(found))}" if found else "none"
        few = "a class" if classes == 1 else "each of at least two classes"
        raise DatasetError(f"{folder} needs a folder for {few}, and has {present}")
    pictures = PictureFiles(folder, found, tuple(others))
    if empty := [name for name, files in found.items() if not files]:
        unread = [f"{folder} has no pictures ({', '.join(FORMATS)}) in {join_names(empty)}"]
        raise DatasetError("; ".join(filter(None, (*unread, pictures.describe_others()))))
    _refuse_data_sets(pictures)
    return pictures


def read_each(
    files: Sequence[Path], look: Callable[[Content], _T], *, load: bool = True
) -> dict[Path, _T]:
    """Call `look` with each picture, loaded or only opened; what cannot be read is left out.

    Arrays are always loaded.
    """
    results, verb = dict[Path, _T](), "reading" if load else "looking at"
    for file in track(files, f"{verb} {len(files):,} pictures", disable=len(files) < _SLOW):
        try:
            picture = open_image(file.read_bytes())
            if load and isinstance(picture, Image.Image):
                picture = load_image(picture)
        except _UNREADABLE:
            continue
        results[file] = look(picture)
    return results


def header_of(picture: Content) -> tuple[tuple[int, int], int]:
    """The width and height of a picture, upright, and its channels; it need not be loaded.

    It has 1 channel if it is grey by its format, 3 if it may have colour, and an array its own.
    """
    if isinstance(picture, Image.Image):
        return turn_upright(picture).size, 1 if picture.mode in _GREY_MODES else 3
    height, width, channels = picture.shape
    return (width, height), channels


def to_bytes(picture: Content, channels: int, height: int, width: int) -> NDArray[np.uint8]:
    """A picture as the network sees it, (C, H, W): cropped and scaled as serving does it."""
    upright = turn_upright(picture) if isinstance(picture, Image.Image) else picture
    pixels = scale_picture(upright, channels, height, width, middle=True)
    if len(pixels) != channels:  # grey arrays among coloured ones, or the other way round
        pixels = np.asarray(pixels.mean(axis=0, keepdims=True)).repeat(channels, axis=0)
    return np.rint(pixels * 255).astype(np.uint8)


def digest_content(file: Path) -> str:
    """The beginning of the SHA-256 of a file's content."""
    return _hash(file.read_bytes())


def content_of(fingerprint: str) -> str:
    """The part of a fingerprint that `digest_content` gives."""
    return fingerprint[_HEX:]


def join_names(names: Sequence[str], shown: int = 3) -> str:
    """The first few names, and how many more there are."""
    first, more = names[:shown], len(names) - shown
    if more > 0:
        return f"{', '.join(first)} and {more:,} more"
    return " and ".join([", ".join(first[:-1]), first[-1]] if first[1:] else first)


def _walk(folder: Path) -> Iterator[Path]:
    """All files of a folder and of those in it, sorted; hidden ones are passed over."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def _refuse_data_sets(found: PictureFiles) -> None:
    """Refuse a folder whose folders are `train` and `test`, with the classes in them."""
    names = list(found.classes)
    if not {name.lower() for name in names} <= _SPLITS:
        return
    places = [file.relative_to(found.folder).parts for file in found.files]
    if inner := {inner for _, inner, *rest in places if rest}:
        first = next((name for name in names if name.lower().startswith("train")), names[0])
        raise DatasetError(
            f"{join_names(names)} in {found.folder} are no classes: {join_names(sorted(inner))} in "
            f"them are. Say --data {found.folder / first}"
        )


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_HEX]
