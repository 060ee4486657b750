"""Read the format and the size of an image file from its header, without decoding it.

Training and the service refuse the same files: those that cost too much to decode safely.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from model.errors import Problem, UnreadablePicture, UnsupportedFormat
from model.preprocess.array import SIGNATURE, view_array

MAX_SEGMENTS = 500
"""A JPEG may have this many segments before its pixels. Large metadata come in parts of 64 KB."""
MAX_SCANS = 100
"""A JPEG and its previews may have this many scans; each costs as much as all pixels.

Cameras write ten.
"""
MAX_CHUNKS = 10_000
"""A PNG may have this many chunks: those that fit into a body, at the 4 KB that encoders write at
once.
"""
_MARKER = re.compile(rb"\xff{1,16}([^\0\xff])", re.DOTALL)
"""The marker of a JPEG's segment, after fill bytes."""
_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The markers of segments that hold the size."""
_BARE = frozenset({0x01, *range(0xD0, 0xDA)})
"""The markers without a segment."""
_SCAN, _APP1 = 0xDA, 0xE1
_PLAIN = re.compile(
    rb"IHDR(?:cHRM|gAMA|sBIT|sRGB|bKGD|pHYs|tIME|PLTE|tRNS)*(?:IDAT)+IEND", re.DOTALL
)
"""The chunks of a PNG that holds pixels and nothing that takes long to read."""
_PNG = b"\x89PNG\r\n\x1a\n"
_PALETTE, _CHANNELS = 3, {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""A PNG's colour type of a palette, and the channels of each type."""
ARRAY = "NPY"
"""The format of arrays, which Pillow does not read: see `model.preprocess.array`."""
MAX_ENTRIES = 200
"""A directory of a TIFF, or of EXIF data, may have this many entries; cameras write some thirty."""
MAX_NUMBERS = 16_384
"""An entry of a TIFF may have this many numbers: a strip for each row of the highest picture."""
MAX_TILE_PIXELS = 1_000_000
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_COMPRESSION, _TIFF_SHORT = 256, 257, 259, 3
_TILE_WIDTH, _TILE_HEIGHT = 322, 323
_DIRECTORIES = frozenset({34665, 34853, 40965})
"""The entries that hold the offset of another directory: EXIF, GPS, interoperability."""
_NEEDED = _DIRECTORIES | {
    _TIFF_WIDTH,
    _TIFF_HEIGHT,
    _TIFF_COMPRESSION,
    _TILE_WIDTH,
    _TILE_HEIGHT,
}
_SIZES_OF_KINDS = {1: 1, 2: 1, 6: 1, 7: 1, 3: 2, 8: 2, 4: 4, 9: 4, 11: 4, 13: 4, 5: 8, 10: 8, 12: 8}
"""The bytes of a number, by the kind of a TIFF's entry."""
_TIFF_COMPRESSIONS = frozenset({1, 5, 8, 32773, 32946})
"""No compression, LZW, Deflate, PackBits, and Deflate's older number."""


class Header(NamedTuple):
    """The format, and the size in pixels, of an uploaded picture."""

    format: str
    width: int
    height: int


def read_header(content: bytes) -> Header:
    """Read the format and size of an image file from its first bytes.

    Raises:
        UnsupportedFormat: not one of FORMATS.
        UnreadablePicture: truncated or corrupt.
    """
    for name, (signature, read_size) in _READERS.items():
        if signature.match(content):
            try:
                return Header(name, *read_size(content))
            except struct.error as error:
                raise _corrupt() from error
    raise UnsupportedFormat(f"the picture is none of {', '.join(FORMATS)}")


def check_parts(content: bytes, header: Header) -> None:
    """Refuse a file whose parts would take longer to read than its pixels.

    Raises:
        UnreadablePicture: there are too many of them.
    """
    if header.format == "TIFF":
        order = _byte_order(content)
        (offset,) = struct.unpack_from(f"{order}I", content, 4)
        _check_directories(content, offset, order)
    if header.format == "JPEG" and content.count(b"\xff\xda") > MAX_SCANS:
        raise UnreadablePicture(f"a JPEG may have {MAX_SCANS} scans, this one has more")
    if header.format == "PNG":
        kinds = [kind for kind, *_ in islice(_chunks(content), MAX_CHUNKS + 1)]
        if len(kinds) > MAX_CHUNKS:
            raise UnreadablePicture(f"a PNG may have {MAX_CHUNKS:,} chunks, this one has more")
        if kinds.count(b"iCCP") > 1:
            raise UnreadablePicture("a PNG may have one colour profile, this one has more")


def is_plain_png(content: bytes) -> bool:
    """Whether a file is, to its last byte, a PNG of its own pixels and short metadata."""
    if not content.startswith(_PNG):
        return False
    chunks = list(_chunks(content))
    kinds = [kind for kind, *_ in chunks]
    ends = chunks[-1][2] if chunks else 0
    if ends != len(content) or not _PLAIN.fullmatch(b"".join(kinds)):
        return False
    width, height, depth, colour = struct.unpack_from(">IIBB", content, 16)
    if colour == _PALETTE and b"PLTE" not in kinds:
        return False
    most = 2 * height * (1 + width * depth * _CHANNELS.get(colour, 0))  # at least twice the bytes
    data = b"".join(content[start : end - 4] for kind, start, end in chunks if kind == b"IDAT")
    try:
        return bool(len(zlib.decompressobj().decompress(data, most)) < most)
    except zlib.error:
        return False


def _chunks(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The kind of each chunk of a PNG, where its data begin, and where its checksum ends."""
    offset = len(_PNG)
    while offset + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, offset)
        start, offset = offset + 8, offset + 12 + length
        yield kind, start, offset


def _png(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", content, 16)
    return width, height


def _jpeg(content: bytes) -> tuple[int, int]:
    """Read (width, height) from the segments before the first scan, at most MAX_SEGMENTS."""
    offset, size, exifs = 2, None, list[bytes]()
    for _ in range(MAX_SEGMENTS):
        marker = _MARKER.match(content, offset)
        if marker is None:
            raise _corrupt()
        (kind,), offset = marker[1], marker.end()
        if kind == _SCAN and size:
            return size
        if kind == _APP1 and content[offset + 2 : offset + 8] == b"Exif\0\0":
            (length,) = struct.unpack_from(">H", content, offset)
            exifs.append(content[offset + 8 : offset + length])
            check_exif(exifs[0])
            if len(exifs) > 1:
                raise UnreadablePicture("a JPEG may have one block of EXIF data, this one has more")
        if kind in _SIZES:
            height, width = struct.unpack_from(">HH", content, offset + 3)
            size = width, height
        if kind not in _BARE:
            offset += struct.unpack_from(">H", content, offset)[0]
    raise UnreadablePicture(f"a JPEG may have {MAX_SEGMENTS} segments, this one has more")


def _webp(content: bytes) -> tuple[int, int]:
    match content[12:16]:
        case b"VP8X":  # the canvas
            (packed,) = struct.unpack_from("<Q", content + b"\0\0", 24)
            return 1 + (packed & 0xFFFFFF), 1 + (packed >> 24 & 0xFFFFFF)
        case b"VP8L":
            (packed,) = struct.unpack_from("<I", content, 21)
            return 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", content, 26)
            return width & 0x3FFF, height & 0x3FFF
    raise _corrupt()


def _bmp(content: bytes) -> tuple[int, int]:
    (size,) = struct.unpack_from("<I", content, 14)
    if size == 12:
        width, height = struct.unpack_from("<HH", content, 18)
        return width, height
    width, height, _, _, compression = struct.unpack_from("<iiHHI", content, 18)
    if compression in (1, 2):  # Pillow reads it in Python, run by run
        raise UnsupportedFormat("a BMP with run-length compression is not read")
    return abs(width), abs(height)


def _gif(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", content, 6)
    return width, height


def _tiff(content: bytes) -> tuple[int, int]:
    """Read (width, height) from a TIFF's first and only directory."""
    order = _byte_order(content)
    (offset,) = struct.unpack_from(f"{order}I", content, 4)
    numbers, end = _read_directory(content, offset, order)
    (following,) = struct.unpack_from(f"{order}I", content, end)
    if following:
        raise UnsupportedFormat("a TIFF has one page, this one has several")
    if numbers.get(_TIFF_COMPRESSION, 1) not in _TIFF_COMPRESSIONS:
        raise UnsupportedFormat(
            "a TIFF is read without compression, or with LZW, Deflate, PackBits"
        )
    if numbers.get(_TILE_WIDTH, 0) * numbers.get(_TILE_HEIGHT, 0) > MAX_TILE_PIXELS:
        raise UnreadablePicture(f"a TIFF's tile may have {MAX_TILE_PIXELS:,} pixels")
    if not {_TIFF_WIDTH, _TIFF_HEIGHT} <= numbers.keys():
        raise _corrupt()
    return numbers[_TIFF_WIDTH], numbers[_TIFF_HEIGHT]


def _read_directory(content: bytes, offset: int, order: str) -> tuple[dict[int, int], int]:
    """The single numbers of a TIFF's directory that are needed, by tag, and where it ends.

    Pillow reads all values of a directory, also those that it does not need.
    """
    entries = _count_entries(content, offset, order)
    numbers, size, end = dict[int, int](), 0, offset + 2 + 12 * entries
    for entry in range(offset + 2, end, 12):
        tag, kind, count = struct.unpack_from(f"{order}HHI", content, entry)
        width = _SIZES_OF_KINDS.get(kind, 0)
        size += count * width
        if (width > 1 and count > MAX_NUMBERS) or size > len(content):
            text = f"an entry of a TIFF may have {MAX_NUMBERS:,} numbers, or strips"
            raise UnreadablePicture(f"{text}; this one has more, or is cut")
        if tag in _NEEDED and count == 1:
            form = "H" if kind == _TIFF_SHORT else "I"
            (numbers[tag],) = struct.unpack_from(f"{order}{form}", content, entry + 8)
    return numbers, end


def _check_directories(content: bytes, offset: int, order: str, depth: int = 2) -> None:
    """Check the directories to which a TIFF's refers: Pillow reads them too."""
    numbers, _ = _read_directory(content, offset, order)
    for tag in _DIRECTORIES & numbers.keys() if depth else ():
        with suppress(struct.error):  # one that is cut is not read
            _check_directories(content, numbers[tag], order, depth - 1)


def _byte_order(content: bytes) -> str:
    return "<" if content.startswith(b"II") else ">"


def _count_entries(content: bytes, offset: int, order: str) -> int:
    (entries,) = struct.unpack_from(f"{order}H", content, offset)
    if entries > MAX_ENTRIES:
        raise UnreadablePicture(f"a directory may have {MAX_ENTRIES} entries, this one has more")
    return int(entries)


def check_exif(exif: bytes) -> None:
    """Refuse EXIF data of too many entries. Damaged data are no problem: they are not read.

    Raises:
        UnreadablePicture: there are more than `MAX_ENTRIES`.
    """
    content = exif.removeprefix(b"Exif\0\0")
    order = _byte_order(content)
    with suppress(struct.error):
        (offset,) = struct.unpack_from(f"{order}I", content, 4)
        _count_entries(content, offset, order)


def _npy(content: bytes) -> tuple[int, int]:
    height, width, _ = view_array(content).shape
    return width, height


def _corrupt() -> Problem:
    return UnreadablePicture("the picture's header is truncated or corrupt")


_READERS: dict[str, tuple[re.Pattern[bytes], Callable[[bytes], tuple[int, int]]]] = {
    "PNG": (re.compile(_PNG), _png),
    "JPEG": (re.compile(b"\xff\xd8\xff"), _jpeg),
    "WEBP": (re.compile(b"RIFF....WEBP", re.DOTALL), _webp),
    "BMP": (re.compile(b"BM"), _bmp),
    "GIF": (re.compile(b"GIF8[79]a"), _gif),
    "TIFF": (re.compile(b"II\\*\0|MM\0\\*"), _tiff),
    ARRAY: (re.compile(re.escape(SIGNATURE)), _npy),
}
"""For each format, the pattern of its first bytes and the function that reads its size."""
FORMATS = tuple(_READERS)
