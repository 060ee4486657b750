"""From uploaded files to images for the network, and from images to files."""

from __future__ import annotations

import asyncio
import io
import math
import re
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

from model.bundle import PreprocessRule
from model.canvas import enlarge, png
from model.preprocess import Fit, Floats, Polarity, Prepared, PreprocessError, prepare
from service.errors import (
    InvalidParameter,
    Problem,
    TooLarge,
    UnreadablePicture,
    UnsupportedFormat,
    release,
)

SAMPLES = Path(__file__).parent / "samples"
"""One real digit of each class, 28x28 greyscale PNG; folders of other data sets' pictures."""
Upload = bytes | Problem
"""The bytes of an image file, or why this one of several could not be taken."""
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
_SIGNATURE = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|RIFF....WEBP|BM|GIF8[79]a", re.DOTALL)
"""How a file in one of FORMATS begins."""
_PLAIN_PNG = re.compile(rb"\x89PNG\r\n\x1a\n\0\0\0\rIHDR(.{4})(.{4}).{13}IDAT", re.DOTALL)
"""What else a PNG may hold before its pixels, such as compressed texts, can take long to read."""
_FEW_BYTES = 4096
_FEW = 8
"""A request with more images than this has none decoded on the event loop."""
_AMPLE_PIXELS = 640
"""Images that are decoded smaller than they are keep at least this, along their longer side."""
_LARGE = 4_000_000
"""Images with more pixels than this are made smaller, whatever their format."""
_STRIP = 1_000_000
"""Pixels that are made smaller at once."""
_BROKEN = (OSError, ValueError, SyntaxError, IndexError, EOFError, struct.error)
"""What Pillow raises of truncated and corrupt files."""


class Decoded(NamedTuple):
    """An image, and how much smaller it was made."""

    picture: Image.Image
    shrink: float
    """Pixels of the file, along a side, that one of the image stands for."""


def decode(content: bytes, *, max_pixels: int) -> Decoded:
    """Decode the first frame of a picture.

    Large ones come smaller than they are, which is more than enough for a network and saves time
    (JPEGs, while they are decoded) and memory (all others, before they are made grey).

    Args:
        content: a whole file in one of FORMATS.
        max_pixels: largest width x height, checked before anything is decoded.

    Raises:
        UnsupportedFormat: not one of FORMATS.
        TooLarge: more pixels than allowed.
        UnreadablePicture: truncated or corrupt.
    """
    Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit; that of the settings is checked below
    try:
        picture = Image.open(io.BytesIO(content), formats=FORMATS)
    except UnidentifiedImageError as error:
        if _SIGNATURE.match(content):
            raise UnreadablePicture("the picture's header is truncated or corrupt") from error
        known = ", ".join(FORMATS)
        raise UnsupportedFormat(f"the picture is none of {known}") from error
    except _BROKEN as error:
        raise UnreadablePicture(f"the picture's header cannot be read: {error}") from error
    if picture.width * picture.height > max_pixels:
        raise TooLarge(
            f"a picture may have {max_pixels:,} pixels, this one has "
            f"{picture.width} x {picture.height}"
        )
    longest = max(picture.size)
    factor = max(1, longest // _AMPLE_PIXELS)
    try:
        picture.draft(None, (max(1, picture.width // factor), max(1, picture.height // factor)))
        picture.load()
    except _BROKEN as error:
        raise UnreadablePicture(f"the picture is truncated or corrupt: {error}") from error
    smaller = _reduce(picture)
    return Decoded(smaller, longest / max(smaller.size))


def _reduce(picture: Image.Image) -> Image.Image:
    """A large picture smaller by a whole factor, made strip by strip to need little memory."""
    width, height = picture.size
    factor = max(width, height) // _AMPLE_PIXELS
    if width * height <= _LARGE or factor < 2:
        return picture
    rows = factor * max(1, _STRIP // (width * factor))
    smaller = None
    for top in range(0, height, rows):
        strip = picture.crop((0, top, width, min(top + rows, height)))
        strip = _averageable(strip).reduce(factor)
        smaller = smaller or Image.new(strip.mode, (strip.width, math.ceil(height / factor)))
        smaller.paste(strip, (0, top // factor))
    assert smaller
    smaller.info = {key: value for key, value in picture.info.items() if key != "transparency"}
    return smaller


def _averageable(picture: Image.Image) -> Image.Image:
    """In a mode whose pixels can be averaged: no palette, no colour that means transparent."""
    if picture.mode.startswith("I"):
        return picture.convert("I")
    if picture.has_transparency_data:
        return picture.convert("RGBA")
    return picture.convert({"1": "L", "P": "RGB"}.get(picture.mode, picture.mode))


def encode_png(image: Floats, *, scale: int = 1) -> bytes:
    """An image (C, H, W) in [0, 1] as a PNG, each pixel enlarged to `scale` squared."""
    return png(enlarge(image, scale))


class Frame(NamedTuple):
    """What images files are made into, and how; see `model.preprocess.prepare`."""

    shape: tuple[int, int, int]
    """(C, H, W)."""
    rule: PreprocessRule
    fit: Fit = "auto"
    polarity: Polarity = "auto"


class Preparation:
    """Decodes and prepares images, on threads where that takes longer than the way there.

    Args:
        max_pixels: largest image.
        threads: of the pool.
    """

    def __init__(self, *, max_pixels: int, threads: int) -> None:
        self._max_pixels = max_pixels
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="pictures")

    async def prepare(self, uploads: Sequence[Upload], frame: Frame) -> list[Prepared | Problem]:
        """What each upload becomes, or the problem with it.

        Those of one request take turns with others': it has no more at work than there are threads.
        """
        if len(uploads) == 1:
            return [await self._prepare(uploads[0], frame, here=True)]
        turns = asyncio.Semaphore(self._threads)

        async def prepare_in_turn(upload: Upload) -> Prepared | Problem:
            async with turns:
                return await self._prepare(upload, frame, here=len(uploads) <= _FEW)

        return await asyncio.gather(*map(prepare_in_turn, uploads))

    def close(self) -> None:
        """Stop the pool; what still waits there is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _prepare(self, upload: Upload, frame: Frame, *, here: bool) -> Prepared | Problem:
        """On this thread, if it may be and that is quick; else on the pool."""
        if isinstance(upload, Problem):
            return upload
        if here and is_quick(upload, frame):
            return self._work(upload, frame)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._work, upload, frame)

    def _work(self, content: bytes, frame: Frame) -> Prepared | Problem:
        """One image."""
        try:
            picture, shrink = decode(content, max_pixels=self._max_pixels)
            prepared = prepare(
                picture, frame.shape, rule=frame.rule, fit=frame.fit, polarity=frame.polarity
            )
        except PreprocessError as error:
            return InvalidParameter(str(error), parameter="fit")
        except Problem as problem:
            return release(problem)
        if prepared.box is None:
            return prepared
        return replace(prepared, box=prepared.box.scaled(shrink, shrink))


def is_quick(content: bytes, frame: Frame) -> bool:
    """Whether a file is small and taken pixel by pixel: a twentieth of a millisecond."""
    plain = _PLAIN_PNG.match(content) if len(content) <= _FEW_BYTES else None
    if plain is None or frame.fit not in ("auto", "none"):
        return False
    width, height = (int.from_bytes(size, "big") for size in plain.groups())
    return (height, width) == frame.shape[1:]
