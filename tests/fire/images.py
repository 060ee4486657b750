"""Image files as nobody makes them: real ones of every format, broken in many ways."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

import httpx
from PIL import Image

from service.pictures import SAMPLES

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LIES = (0, 1, 0x7F, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
"""Lengths, widths and counts that programs trip over."""


def originals() -> dict[str, bytes]:
    """Whole files that pillow writes, by format and variant."""
    grey = Image.open(SAMPLES / "7.png").resize((37, 29))
    colour = Image.merge("RGB", (grey, grey.rotate(90, expand=False), grey.rotate(180)))
    clear = colour.copy()
    clear.putalpha(grey)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned
    frames = {"save_all": True, "append_images": [colour.rotate(30), colour.rotate(60)]}
    files: dict[str, tuple[Image.Image, dict[str, object]]] = {
        "PNG grey": (grey, {}),
        "PNG colour": (colour, {"compress_level": 0}),
        "PNG alpha": (clear, {}),
        "PNG palette": (colour.quantize(16), {"bits": 4}),
        "PNG 16 bit": (grey.convert("I;16"), {}),
        "PNG bilevel": (grey.convert("1"), {}),
        "PNG frames": (colour, frames),
        "JPEG grey": (grey, {}),
        "JPEG colour": (colour, {"exif": exif, "quality": 60}),
        "JPEG progressive": (colour, {"progressive": True}),
        "JPEG CMYK": (colour.convert("CMYK"), {}),
        "JPEG restart": (colour, {"restart_marker_rows": 1}),
        "WEBP lossy": (colour, {}),
        "WEBP lossless": (clear, {"lossless": True, "exif": exif}),
        "WEBP frames": (colour, frames),
        "BMP grey": (grey, {}),
        "BMP colour": (colour, {}),
        "BMP bilevel": (grey.convert("1"), {}),
        "GIF grey": (grey, {}),
        "GIF frames": (colour, frames),
    }
    written = {}
    for name, (image, options) in files.items():
        file = io.BytesIO()
        image.save(file, name.partition(" ")[0], **options)
        written[name] = file.getvalue()
    return written


def mutants(seed: int) -> Iterator[tuple[str, bytes]]:
    """Names and contents of broken files, without end; the same for the same seed.

    One to three mutations each. Of PNG files, half have the checksums of what they became, so that
    readers do not stop at the first chunk.
    """
    rng = random.Random(seed)  # noqa: S311
    whole = originals()
    while True:
        name = rng.choice(list(whole))
        content = whole[name]
        kinds = rng.choices(list(_MUTATIONS), k=rng.randint(1, 3))
        for kind in kinds:
            content = _MUTATIONS[kind](rng, content, list(whole.values()))
        if content.startswith(_SIGNATURE) and rng.random() < 0.5:
            content, kinds = _with_checksums(content), [*kinds, "checksums"]
        yield f"{name}: {', '.join(kinds)}", content


def send(base_url: str, *, requests: int, seed: int) -> Counter[int]:
    """Classify so many broken files; how often each status came.

    Raises:
        AssertionError: a status that no file may lead to; the message has the file in hexadecimal.
    """
    statuses: Counter[int] = Counter()
    with httpx.Client(base_url=base_url, timeout=60) as client:
        for name, content in islice(mutants(seed), requests):
            headers = {"Content-Type": "application/octet-stream"}
            answer = client.post("/classify", content=content, headers=headers)
            told = f"{answer.status_code} for {name}: {content.hex()}"
            assert answer.status_code in {200, 400, 413, 415, 422, 429, 503, 504}, told
            statuses[answer.status_code] += 1
    return statuses


def mutate(rng: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """Any bytes, broken in one way; some of the others may be spliced in."""
    return rng.choice(list(_MUTATIONS.values()))(rng, content, others)


def _flip_bits(rng: random.Random, content: bytes, _others: list[bytes]) -> bytes:
    """Up to sixteen bits, rather at the beginning, where headers are."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 16) if changed else 0):
        changed[int(len(changed) * rng.random() ** 2)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncate(rng: random.Random, content: bytes, _others: list[bytes]) -> bytes:
    return content[: rng.randint(1, max(1, len(content)))]


def _duplicate(rng: random.Random, content: bytes, _others: list[bytes]) -> bytes:
    """A chunk of a PNG or any piece, up to a hundred times."""
    starts = _chunk_starts(content) or sorted(rng.choices(range(len(content) + 1), k=3))
    start, end = sorted(rng.choices([*starts, len(content)], k=2))
    return content[:end] + content[start:end] * rng.choice((1, 1, 2, 100)) + content[end:]


def _remove(rng: random.Random, content: bytes, _others: list[bytes]) -> bytes:
    start, end = sorted(rng.choices(range(len(content) + 1), k=2))
    return content[:start] + content[min(end, start + 64) :]


def _lie(rng: random.Random, content: bytes, _others: list[bytes]) -> bytes:
    """A number of 1, 2 or 4 bytes, of either order, that says something else."""
    code = rng.choice(("B", ">H", "<H", ">I", "<I"))
    value = rng.choice(_LIES) & ((1 << 8 * struct.calcsize(code)) - 1)
    position = int(len(content) * rng.random() ** 2)
    return (
        content[:position] + struct.pack(code, value) + content[position + struct.calcsize(code) :]
    )


def _splice(rng: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """The beginning of this file and the end of another."""
    other = rng.choice(others)
    return content[: rng.randint(1, max(1, len(content)))] + other[rng.randrange(len(other)) :]


_MUTATIONS: dict[str, Callable[[random.Random, bytes, list[bytes]], bytes]] = {
    "bits": _flip_bits,
    "truncated": _truncate,
    "duplicated": _duplicate,
    "removed": _remove,
    "lie": _lie,
    "spliced": _splice,
}


def _chunk_starts(content: bytes) -> list[int]:
    """Where the chunks of a PNG begin, as far as their lengths lead."""
    starts, position = [], len(_SIGNATURE)
    while content.startswith(_SIGNATURE) and position + 12 <= len(content):
        starts.append(position)
        position += 12 + int.from_bytes(content[position : position + 4], "big")
    return starts


def _with_checksums(content: bytes) -> bytes:
    """A PNG whose chunks have the right checksums."""
    changed = bytearray(content)
    for start in _chunk_starts(content):
        end = start + 8 + int.from_bytes(content[start : start + 4], "big")
        if end + 4 <= len(content):
            changed[end : end + 4] = zlib.crc32(content[start + 4 : end]).to_bytes(4, "big")
    return bytes(changed)
