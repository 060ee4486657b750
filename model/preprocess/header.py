"""Read the format and the size of an image file from its header, without decoding it.

Training and the service refuse the same files: those that cost too much to decode safely.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from model.errors import Problem, UnreadablePicture, UnsupportedFormat
from model.preprocess.array import SIGNATURE, read_array_header

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
_SCAN = 0xDA
_PLAIN = re.compile(
    rb"IHDR(?:cHRM|gAMA|sBIT|sRGB|bKGD|pHYs|tIME|PLTE|tRNS)*(?:IDAT)+IEND", re.DOTALL
)
"""The chunks of a PNG that holds pixels and nothing that takes long to read."""
_PNG = b"\x89PNG\r\n\x1a\n"
_PALETTE = b"\3"
"""A PNG's colour type, its 26th byte."""
ARRAY = "NPY"
"""The format of arrays, which Pillow does not read: see `model.preprocess.array`."""
MAX_TIFF_ENTRIES = 200
"""A TIFF's directory may have this many entries; cameras and microscopes write some thirty."""
_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_COMPRESSION, _TIFF_SHORT = 256, 257, 259, 3
_TIFF_COMPRESSIONS = frozenset({1, 5, 8, 32773, 32946})
"""No compression, LZW, Deflate, PackBits, and Deflate's older number."""


class Header(NamedTuple):
    """The format, and the size in pixels, of an uploaded picture."""

    format: str
    width: int
    height: int


def read_header(content: bytes) -> Header:
    """Read the format, size and cost of an image file from its first bytes.

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
            except ValueError as error:
                raise UnreadablePicture(str(error)) from error
    raise UnsupportedFormat(f"the picture is none of {', '.join(FORMATS)}")


def check_parts(content: bytes, header: Header) -> None:
    """Refuse a file whose parts would take longer to read than its pixels.

    Raises:
        UnreadablePicture: there are too many of them.
    """
    if header.format == "JPEG" and content.count(b"\xff\xda") > MAX_SCANS:
        raise UnreadablePicture(f"a JPEG may have {MAX_SCANS} scans, this one has more")
    if header.format == "PNG":
        kinds = [kind for kind, _ in islice(_chunks(content), MAX_CHUNKS + 1)]
        if len(kinds) > MAX_CHUNKS:
            raise UnreadablePicture(f"a PNG may have {MAX_CHUNKS:,} chunks, this one has more")
        if kinds.count(b"iCCP") > 1:
            raise UnreadablePicture("a PNG may have one colour profile, this one has more")


def is_plain_png(content: bytes) -> bool:
    """Whether a file is, to its last byte, a PNG of pixels and short metadata."""
    if not content.startswith(_PNG):
        return False
    chunks = list(_chunks(content))
    kinds = [kind for kind, _ in chunks]
    if content[25:26] == _PALETTE and b"PLTE" not in kinds:
        return False
    ends = chunks[-1][1] if chunks else 0
    return ends == len(content) and _PLAIN.fullmatch(b"".join(kinds)) is not None


def _chunks(content: bytes) -> Iterator[tuple[bytes, int]]:
    """The kind of each chunk of a PNG, and where it ends."""
    offset = len(_PNG)
    while offset + 8 <= len(content):
        length, kind = struct.unpack_from(">I4s", content, offset)
        offset += 12 + length
        yield kind, offset


def _png(content: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from(">II", content, 16)
    return width, height


def _jpeg(content: bytes) -> tuple[int, int]:
    """Read (width, height) from the segments before the first scan, at most MAX_SEGMENTS."""
    offset, size = 2, None
    for _ in range(MAX_SEGMENTS):
        marker = _MARKER.match(content, offset)
        if marker is None:
            raise _corrupt()
        (kind,), offset = marker[1], marker.end()
        if kind == _SCAN and size:
            return size
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
    order = "<" if content.startswith(b"II") else ">"
    (offset,) = struct.unpack_from(f"{order}I", content, 4)
    (entries,) = struct.unpack_from(f"{order}H", content, offset)
    if entries > MAX_TIFF_ENTRIES:
        raise UnreadablePicture(f"a TIFF may have {MAX_TIFF_ENTRIES} entries, this one has more")
    numbers = dict[int, int]()
    for entry in range(offset + 2, offset + 2 + 12 * entries, 12):
        tag, kind, count = struct.unpack_from(f"{order}HHI", content, entry)
        if tag in (_TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_COMPRESSION) and count == 1:
            form = "H" if kind == _TIFF_SHORT else "I"
            (numbers[tag],) = struct.unpack_from(f"{order}{form}", content, entry + 8)
    (following,) = struct.unpack_from(f"{order}I", content, offset + 2 + 12 * entries)
    if following:
        raise UnsupportedFormat("a TIFF has one page, this one has several")
    if numbers.get(_TIFF_COMPRESSION, 1) not in _TIFF_COMPRESSIONS:
        raise UnsupportedFormat(
            "a TIFF is read without compression, or with LZW, Deflate, PackBits"
        )
    if not {_TIFF_WIDTH, _TIFF_HEIGHT} <= numbers.keys():
        raise _corrupt()
    return numbers[_TIFF_WIDTH], numbers[_TIFF_HEIGHT]


def _npy(content: bytes) -> tuple[int, int]:
    header = read_array_header(content)
    return header.width, header.height


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
