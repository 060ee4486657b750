"""Pictures of many parts: small files that would take longer to read than a photograph."""

from __future__ import annotations

from tests.attack import files
from tests.attack.cases import Site, attack
from tests.attack.wire import request, several
from tests.service.pictures.costly import (
    exif_jpeg,
    exif_picture,
    exif_tiff,
    inflating_png,
    strips_tiff,
)


@attack("TIFFs of 240,000 strips", allowed=(422,), short=True)
async def many_strips(site: Site) -> None:
    """Each is a megabyte, which took 0.7 s of the only process for small pictures."""
    await site.flood([request("/classify", strips_tiff())], connections=8)


@attack("EXIF data of 60,000 entries", allowed=(422,), short=True)
async def many_entries(site: Site) -> None:
    """Pillow reads all of them to find how a picture is turned."""
    made = [exif_jpeg(), exif_picture("PNG"), exif_picture("WEBP"), exif_tiff()]
    await site.flood([request("/classify", content) for content in made], connections=8)


@attack("256 small PNGs that grow to 4 MB", allowed=(200, 413, 422, 429, 503, 504), short=True)
async def inflating_pictures(site: Site) -> None:
    """They have the network's size, so that they could be decoded on the event loop."""
    await site.flood([several("/classify", [inflating_png()] * 256)], connections=2)


@attack("24 connections of 16-megapixel pictures", allowed=(200, 413, 422, 429, 503, 504))
async def many_large_pictures(site: Site) -> None:
    """Callers take turns, so that others wait for one of them at most."""
    await site.flood([request("/classify", files.square_png(4_000))], connections=24)
