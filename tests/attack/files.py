"""Picture files that are small and ask for much, built from bytes."""

from __future__ import annotations

import math
import struct
import zlib
from functools import cache

SIDE = 7070
"""Squared it is just under the 50 million pixels that were the limit once."""
WIDE = 50_000_000
_MIB = 1 << 20
_ALL_ZERO_RUN = 32_767
"""Blocks that one end-of-band symbol of a progressive JPEG skips at most."""


@cache
def scans_jpeg(scans: int = 6_300, side: int = SIDE) -> bytes:
    """A progressive grey JPEG whose every scan says that nothing changes."""
    blocks = math.ceil(side / 8) ** 2
    runs = [min(_ALL_ZERO_RUN, blocks - at) for at in range(0, blocks, _ALL_ZERO_RUN)]
    bits = "".join("0" + format(run - (1 << 14), "014b") for run in runs[:-1])
    bits += "0" + "1" * 14  # more than are left: the scan ends
    size = math.ceil(len(bits) / 8)
    packed = int(bits.ljust(8 * size, "1"), 2).to_bytes(size, "big")
    scan = _segment(0xDA, b"\x01\x01\x00\x01\x3f\x00") + packed.replace(b"\xff", b"\xff\x00")
    table = _segment(0xC4, b"\x10" + bytes([1]) + bytes(15) + b"\xe0")
    return _jpeg_head(0xC2, side, side) + table + scan * scans + b"\xff\xd9"


@cache
def filled_jpeg(size: int = 19_000_000) -> bytes:
    """A JPEG of nothing but fill bytes between two markers."""
    return b"\xff\xd8" + b"\xff" * size + _segment(0xDB, bytes(65)) + b"\xff\xd9"


@cache
def commented_jpeg(comments: int = 4_500_000) -> bytes:
    """A JPEG of empty comments."""
    return b"\xff\xd8" + _segment(0xFE, b"") * comments + b"\xff\xd9"


@cache
def rle_bmp(width: int = WIDE) -> bytes:
    """A BMP of one very long row, which encodes its first pixel and then the end of the row."""
    palette, data = bytes(1024), b"\x01\x00\x00\x00"
    head = struct.pack("<IiiHHIIiiII", 40, width, 1, 1, 8, 1, len(data), 0, 0, 256, 0)
    start = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start) + head + palette + data


@cache
def one_colour_webp(width: int = 16_383, height: int = 3_051) -> bytes:
    """A WebP in 28 bytes: five codes of one symbol each, and no pixels; no side may be longer."""
    bits, at = 0, 0
    for value, count in (
        (width - 1, 14),
        (height - 1, 14),
        (1, 1),  # there is alpha
        (0, 3 + 3),  # version; neither transforms, nor a cache, nor several groups of codes
        *((1, 4),) * 5,  # a simple code of the one symbol 0
    ):
        bits, at = bits | value << at, at + count
    content = b"\x2f" + bits.to_bytes(math.ceil(at / 8), "little")
    padded = content + bytes(len(content) % 2)
    chunk = b"VP8L" + struct.pack("<I", len(content)) + padded
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


@cache
def profiles_png(profiles: int = 17_000) -> bytes:
    """A PNG with colour profiles of a megabyte each, compressed to a kilobyte, before its data."""
    return _png(28, 28, before=_profile() * profiles)


@cache
def wide_png(width: int = WIDE, height: int = 1) -> bytes:
    """A PNG of very long rows in four channels, all zero."""
    return _png(width, height, colour=6)


@cache
def square_png(side: int = SIDE) -> bytes:
    """A large grey PNG, all zero."""
    return _png(side, side)


@cache
def empty_chunks_png(chunks: int = 1_500_000) -> bytes:
    """A PNG whose data come in empty pieces."""
    return _png(28, 28, before=_chunk(b"IDAT", b"") * chunks)


@cache
def texts_png(texts: int = 1_200_000) -> bytes:
    """A PNG with a text of one letter, many times."""
    return _png(28, 28, before=_chunk(b"tEXt", b"k\0v") * texts)


@cache
def no_palette_png() -> bytes:
    """A PNG whose pixels are numbers in a palette that it does not have."""
    return _png(28, 28, colour=3)


@cache
def comments_gif(comments: int = 3_500_000) -> bytes:
    """A GIF with a comment of one letter, many times."""
    return b"GIF89a\x1c\0\x1c\0\x80\0\0" + bytes(6) + b"\x21\xfe\x01c\0" * comments + b"\x3b"


_PNG = b"\x89PNG\r\n\x1a\n"


def _png(
    width: int, height: int, *, colour: int = 0, before: bytes = b"", after: bytes = b""
) -> bytes:
    """A whole PNG of zeros; colour 0 is grey, 3 a palette, 6 RGBA."""
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    row = 1 + width * (4 if colour == 6 else 1)
    data = _chunk(b"IDAT", _compressed_zeros(row * height))
    return b"".join((_PNG, _chunk(b"IHDR", head), before, data, after, _chunk(b"IEND", b"")))


def _compressed_zeros(size: int) -> bytes:
    compressor = zlib.compressobj(9)
    whole, rest = divmod(size, _MIB)
    parts = [compressor.compress(bytes(_MIB)) for _ in range(whole)]
    return b"".join([*parts, compressor.compress(bytes(rest)), compressor.flush()])


def _profile() -> bytes:
    return _chunk(b"iCCP", b"p\0\0" + _compressed_zeros(_MIB))


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def _jpeg_head(kind: int, width: int, height: int) -> bytes:
    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\x00"
    return b"\xff\xd8" + _segment(0xDB, b"\0" + b"\1" * 64) + _segment(kind, frame)


def _segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content
