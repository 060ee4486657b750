"""Small files that cost much, built from bytes."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image

_PNG = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, data: bytes) -> bytes:
    """One of a PNG."""
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def png(width: int, height: int, *before: bytes, after: bytes = b"", colour: int = 0) -> bytes:
    """A black PNG, with other chunks before and after its pixels."""
    channels = {0: 1, 2: 3, 3: 1, 6: 4}[colour]
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
    compressor = zlib.compressobj(9)
    row = bytes(1 + width * channels)
    data = b"".join(compressor.compress(row) for _ in range(height)) + compressor.flush()
    return b"".join((_PNG, header, *before, chunk(b"IDAT", data), after, chunk(b"IEND", b"")))


def profile(megabytes: float = 1) -> bytes:
    """A chunk of a kilobyte with a colour profile that is decompressed to a megabyte."""
    return chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(int(1e6 * megabytes)), 9))


def progressive_jpeg(side: int, scans: int) -> bytes:
    """A grey square of so many scans: each covers all pixels in a few bytes."""
    file = io.BytesIO()
    flat = Image.fromarray(np.full((8, 8), 128, np.uint8))
    flat.save(file, "JPEG", progressive=True)
    content = file.getvalue()
    size = content.index(b"\xff\xc2") + 5
    content = content[:size] + struct.pack(">HH", side, side) + content[size + 4 :]
    first = content.index(b"\xff\xda")
    scan = content[first : content.index(b"\xff", first + 2)]
    return content[:first] + scan * scans + b"\xff\xd9"


def filled_jpeg(size: int) -> bytes:
    """A small JPEG with so many fill bytes before its first segment."""
    file = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(file, "JPEG")
    content = file.getvalue()
    return content[:2] + b"\xff" * size + content[2:]


def webp(side: int) -> bytes:
    """A lossless WebP of a single colour, in 34 bytes."""
    file = io.BytesIO()
    Image.new("RGB", (1, 1)).save(file, "WEBP", lossless=True)
    content = bytearray(file.getvalue())
    place = content.index(b"VP8L") + 9
    (bits,) = struct.unpack_from("<I", content, place)
    struct.pack_into("<I", content, place, bits >> 28 << 28 | (side - 1) << 14 | (side - 1))
    return bytes(content)


def tiff(*entries: tuple[int, int, int, int], after: bytes = b"") -> bytes:
    """A TIFF of 28 x 28 pixels, with further entries: tag, kind, count, value."""
    usual = {256: (3, 28), 257: (3, 28), 258: (3, 8), 259: (3, 1), 262: (3, 1), 273: (4, 8)}
    others = {tag: (kind, count, value) for tag, kind, count, value in entries}
    every = {tag: (kind, 1, value) for tag, (kind, value) in usual.items()} | others
    packed = b"".join(struct.pack("<HHII", tag, *every[tag]) for tag in sorted(every))
    head = b"II*\0" + struct.pack("<IH", 8, len(every))
    return head + packed + bytes(4) + after


def strips_tiff(strips: int = 240_000) -> bytes:
    """A TIFF of so many strips of one row, all of the same bytes."""
    counts = (273, 4, strips, 8), (278, 3, 1, 1), (279, 4, strips, 8)
    return tiff(*counts, after=bytes(4 * strips))


def directory(entries: int = 60_000) -> bytes:
    """A directory of so many entries of 900 bytes, all of the same bytes."""
    packed = (struct.pack("<HHII", tag, 7, 900, 8) for tag in range(entries))
    return struct.pack("<H", entries) + b"".join(packed)


def exif_tiff() -> bytes:
    """A TIFF that refers to EXIF data of 60,000 entries."""
    start = len(tiff((34665, 4, 1, 0)))
    return tiff((34665, 4, 1, start), after=directory())


def exif_picture(picture_format: str) -> bytes:
    """A PNG or WebP with EXIF data of 60,000 entries."""
    file, exif = io.BytesIO(), b"Exif\0\0II*\0\x08\0\0\0" + directory()
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(file, picture_format, exif=exif)
    return file.getvalue()


def exif_jpeg() -> bytes:
    """A JPEG with EXIF data of 60,000 entries, in several blocks."""
    file, exif = io.BytesIO(), b"II*\0\x08\0\0\0" + directory()
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(file, "JPEG")
    content = file.getvalue()
    blocks = [exif[start : start + 65_000] for start in range(0, len(exif), 65_000)]
    segments = [
        b"\xff\xe1" + struct.pack(">H", len(block) + 8) + b"Exif\0\0" + block for block in blocks
    ]
    return content[:2] + b"".join(segments) + content[2:]


def rle_bmp(width: int, height: int) -> bytes:
    """A BMP of runs: a pair of bytes for up to 255 pixels."""
    data = b"\xff\0" * (width * height // 255) + b"\0\1"
    palette = bytes(1024)
    start = 54 + len(palette)
    head = b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(data), 0, 0, 256, 0)
    return head + info + palette + data
