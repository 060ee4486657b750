"""Attacks with work: pictures that take long to decode, numbers that cost much, large answers."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterable
from statistics import median

from tests.attack import files
from tests.attack.cases import Site, attack
from tests.attack.heads import SEVEN
from tests.attack.wire import Answer, request, several

HASTE = ["X-Request-Timeout: 1"]
PNG = ["Accept: image/png"]
UNFIT = (200, 400, 413, 415, 422, 429, 503, 504)


@attack("count of 400 nines", allowed=(400, 422), short=True)
async def endless_count(site: Site) -> None:
    """A number that no float holds, as the count of digits to look for."""
    await site.flood([request(f"/segment?count={'9' * 400}", SEVEN)])


@attack("count of a billion", allowed=(400, 422), short=True)
async def billion_count(site: Site) -> None:
    """A cost that would fill every queue."""
    await site.flood([request("/segment?count=1000000000", SEVEN)])


@attack("every number in a query", short=True)
async def every_number(site: Site) -> None:
    """All parameters of the API's document, with numbers that are too large, or none."""
    document = json.loads((await site.send(request("/openapi.json"))).body)
    values = ("9" * 400, "-1", "1000000000", "1e308", "nan", "-inf", "%0a", "")
    queries = [
        request(f"{re.sub('{.*?}', '7', path)}?{parameter['name']}={value}", method=method.upper())
        if method == "get"
        else request(f"{path}?{parameter['name']}={value}", SEVEN)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
        for value in values
    ]
    for start in range(0, len(queries), 16):
        await asyncio.gather(*(site.send(one) for one in queries[start : start + 16]))


@attack("2 progressive JPEGs of 6,300 scans", allowed=UNFIT, short=True)
async def many_scans(site: Site) -> None:
    """473 KB each, with a deadline of a second: an hour of somebody's time."""
    await site.flood([request("/classify", files.scans_jpeg(), headers=HASTE)], connections=2)


@attack("BMP of one row of 50 million", allowed=UNFIT, short=True)
async def long_row(site: Site) -> None:
    """1 KB that a loop in Python fills up pixel by pixel."""
    await site.flood([request("/classify", files.rle_bmp(), headers=HASTE)], connections=4)


@attack("256 WebPs in one JSON", allowed=UNFIT)
async def many_webps(site: Site) -> None:
    """13 KB that become 200 MB each."""
    webps = several("/classify", [files.one_colour_webp()] * 256)
    await site.flood([webps, several("/classify", [files.one_colour_webp(16_383, 16_383)] * 256)])


@attack("8 WebPs side by side", allowed=UNFIT)
async def webps_together(site: Site) -> None:
    """28 bytes each, which are 50 million pixels."""
    await site.flood([request("/classify", files.one_colour_webp())], connections=8)


@attack("PNG of 17,000 profiles", allowed=UNFIT)
async def many_profiles(site: Site) -> None:
    """18 MB of profiles that are unpacked before the first pixel."""
    await site.flood([request("/classify", files.profiles_png())], connections=2)


@attack("PNG of one row of 50 million", allowed=UNFIT)
async def wide_png(site: Site) -> None:
    """194 KB that are 200 MB, several times over."""
    await site.flood([request("/classify", files.wide_png())], connections=4)


@attack("JPEG of fill bytes", allowed=UNFIT)
async def filled_jpeg(site: Site) -> None:
    """19 MB that are skipped byte by byte."""
    await site.flood([request("/classify", files.filled_jpeg())], connections=2)


@attack("files of many chunks", allowed=UNFIT)
async def many_chunks(site: Site) -> None:
    """PNG, JPEG and GIF of a million pieces that say nothing."""
    makers = (
        files.empty_chunks_png,
        files.texts_png,
        files.commented_jpeg,
        files.comments_gif,
    )
    await site.flood([request("/classify", make()) for make in makers])


@attack("256 JPEGs of 499 comments in one JSON", allowed=UNFIT, short=True)
async def many_segments(site: Site) -> None:
    """Each takes half a millisecond to refuse, before anything is admitted."""
    data = several("/classify", [files.commented_jpeg(499)] * 256)
    await site.flood([data], connections=30)


@attack("files just under a megabyte", allowed=UNFIT)
async def small_files(site: Site) -> None:
    """As much work as a file may hold that is still taken for a small one."""
    made = [files.comments_gif(190_000), files.commented_jpeg(240_000), files.texts_png(9_000)]
    made += [files.scans_jpeg(100, 999), files.square_png(999), files.one_colour_webp(999, 999)]
    await site.flood([request("/classify", one) for one in made], connections=12)


@attack("files just within the limits", allowed=UNFIT)
async def allowed_files(site: Site) -> None:
    """As many pixels, scans and chunks, and as long a side, as may be."""
    made = [files.scans_jpeg(100, 5_000), files.scans_jpeg(6_300, 5_000)]
    made += [files.wide_png(16_384, 1_525), files.one_colour_webp(5_000, 5_000)]
    made += [files.square_png(5_000), files.texts_png(9_990), files.profiles_png(1)]
    await site.flood([request("/classify", one) for one in made], connections=12)


@attack("several files just within the limits", allowed=UNFIT)
async def allowed_together(site: Site) -> None:
    """The same, many to a request."""
    webps = several("/classify", [files.one_colour_webp(5_000, 5_000)] * 16)
    jpegs = several("/classify", [files.scans_jpeg(100, 5_000)] * 16)
    small = several("/classify", [files.scans_jpeg(100, 999)] * 64)
    await site.flood([webps, jpegs, small], connections=6)


@attack("profiles after a plain PNG's data", allowed=UNFIT, short=True)
async def late_profiles(site: Site) -> None:
    """Small files that look quick to read, eight to a request."""
    await site.flood([several("/classify", [files.late_profiles_png()] * 8)])


@attack("palette PNG without PLTE", allowed=(200, 422), required=(200, 422), short=True)
async def no_palette(site: Site) -> None:
    """Alone it is refused; among others it fails by itself."""
    await site.send(request("/classify", files.no_palette_png()))
    answer = await site.send(several("/classify", [SEVEN, files.no_palette_png(), SEVEN]))
    if answer.outcome == 200 and _labels(answer) != [7, None, 7]:
        site.outcomes["others failed with it"] += 1


@attack("pictures that only announce", allowed=UNFIT, short=True)
async def announced(site: Site) -> None:
    """Headers without data, truncated files, and files of no known format."""
    whole = [files.announced_png(), files.square_png()[:4_000], files.scans_jpeg()[:600]]
    broken = [whole[1][:40], b"GIF89a", b"RIFF\xff\xff\xff\xffWEBP", b"BM" + bytes(60), SEVEN[:-30]]
    await site.flood([request("/classify", one) for one in whole + broken])


@attack("8 pictures of 50 megapixels", allowed=UNFIT)
async def large_pictures(site: Site) -> None:
    """Files of 49 KB that used to be just small enough."""
    await site.flood([request("/classify", files.square_png())], connections=8)


@attack("8 pictures of 16 megapixels", allowed=UNFIT, short=True)
async def photographs(site: Site) -> None:
    """As large as a phone's photograph: these may be read, if there is time."""
    await site.flood([request("/classify", files.square_png(4_000))], connections=8)


@attack("64 drawings of routing at scale 16", allowed=(200, 429, 503, 504))
async def drawings(site: Site) -> None:
    """The picture that takes longest to draw."""
    await site.flood([request("/routing?scale=16", SEVEN, headers=PNG)], connections=64)


def _labels(answer: Answer) -> list[int | None]:
    return [one.get("label") for one in json.loads(answer.body)["predictions"]]


@attack("24 clients that ask for large answers", allowed=(200, 429, 503), required=(200,))
async def slow_thread(site: Site) -> None:
    """One thread reads forms and writes large answers; an address with one form has its turn."""
    large = [request("/overlay?first=1&second=2&scale=32"), request("/routing?model=mnist", SEVEN)]
    flood = asyncio.create_task(site.flood(large, connections=24))
    await asyncio.sleep(1)
    seconds = []
    while not flood.done():
        began = time.monotonic()
        await site.send(_form([SEVEN] * 8), source="127.0.2.1")
        seconds.append(time.monotonic() - began)
        await asyncio.sleep(0.1)
    if median(seconds) > 1:
        site.outcomes["a form took seconds"] += 1


def _form(images: Iterable[bytes]) -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    padding = b"\0" * 4_000  # more bytes than the event loop reads itself
    body = b"".join(head + image + padding + b"\r\n" for image in images) + b"--b--\r\n"
    return request("/classify", body, kind="multipart/form-data; boundary=b")
