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


def rle_bmp(width: int, height: int) -> bytes:
    """A BMP of runs: a pair of bytes for up to 255 pixels."""
    data = b"\xff\0" * (width * height // 255) + b"\0\1"
    palette = bytes(1024)
    start = 54 + len(palette)
    head = b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, start)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(data), 0, 0, 256, 0)
    return head + info + palette + data
