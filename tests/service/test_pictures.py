"""Files that would take long or much: refused by what they announce, or decoded within limits."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from model.preprocess import Prepared
from model.preprocess.header import MAX_CHUNKS, MAX_SCANS
from model.preprocess.reader import MAX_SIDE
from service.errors import (
    Busy,
    Problem,
    TooLarge,
    Unavailable,
    UnreadablePicture,
    UnsupportedFormat,
)
from service.pictures import ImageSpec, PictureDecoder
from service.settings import Settings
from tests.costly import (
    chunk,
    filled_jpeg,
    png,
    profile,
    progressive_jpeg,
    rle_bmp,
    webp,
)

FRAME = ImageSpec((1, 28, 28), "digit")
_PALETTE = chunk(b"PLTE", bytes(768))
MAX_PIXELS: int = Settings.model_fields["max_pixels"].default


@pytest.fixture
def preparation() -> Iterator[PictureDecoder]:
    """As the service has it by default."""
    made = PictureDecoder(max_pixels=MAX_PIXELS, processes=2)
    yield made
    made.close()


def prepare(preparation: PictureDecoder, *contents: bytes) -> list[Prepared | Problem]:
    return asyncio.run(preparation.decode(contents, FRAME))


@pytest.mark.parametrize(
    ("content", "problem", "text"),
    [
        pytest.param(webp(16_383), TooLarge, "16383 x 16383", id="WebP of 34 bytes"),
        pytest.param(png(10_000, 10_000), TooLarge, "10000 x 10000", id="PNG of a colour"),
        pytest.param(png(MAX_SIDE + 1, 1), TooLarge, "a picture's side", id="PNG of one row"),
        pytest.param(rle_bmp(5_000, 1_000), UnsupportedFormat, "run-length", id="BMP of runs"),
        pytest.param(filled_jpeg(10**6), UnreadablePicture, "header", id="JPEG of fill bytes"),
    ],
)
def test_what_a_header_announces_is_refused_without_a_process(
    content: bytes, problem: type[Problem], text: str, preparation: PictureDecoder
) -> None:
    """In a moment: nothing is decoded."""
    (found,) = prepare(preparation, content)
    assert problem is type(found)
    assert text in found.detail
    assert 0 == preparation.pool.pid


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(progressive_jpeg(2_000, MAX_SCANS + 1), "scans", id="JPEG of many scans"),
        pytest.param(png(9, 9, *2 * [profile()]), "colour profile", id="PNG of two profiles"),
        pytest.param(png(9, 9, after=2 * profile()), "colour profile", id="PNG, after its pixels"),
        pytest.param(png(9, 9, *MAX_CHUNKS * [chunk(b"tIME", b"")]), "chunks", id="PNG of chunks"),
        pytest.param(png(9, 9, colour=3), "palette", id="PNG without its palette"),
        pytest.param(png(28, 28, colour=3), "palette", id="PNG of the network's size, without"),
        pytest.param(png(9, 9, colour=3, after=_PALETTE), "palette", id="PNG, palette at its end"),
    ],
)
def test_a_file_of_too_many_parts_is_refused(
    content: bytes, text: str, preparation: PictureDecoder
) -> None:
    """It alone, with a sentence that says why; the picture next to it is taken."""
    refused, taken = prepare(preparation, content, png(28, 28))
    assert isinstance(refused, UnreadablePicture)
    assert text in refused.detail
    assert isinstance(taken, Prepared)


def test_cpu_time_is_limited(preparation: PictureDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the size that a header announces; the picture next to it is taken."""
    # A tenth of a second for the large picture; two seconds for the small one, on any host.
    monkeypatch.setattr("service.pictures._CPU_S", 2)
    monkeypatch.setattr("service.pictures._CPU_S_PER_PIXEL", -1.9 / 5_000**2)
    refused, taken = prepare(preparation, progressive_jpeg(5_000, MAX_SCANS), png(56, 56))
    assert isinstance(refused, UnreadablePicture)
    assert "takes more than 0.1 s" in refused.detail
    assert isinstance(taken, Prepared)


def test_memory_is_limited(preparation: PictureDecoder) -> None:
    """The largest WebP still fits; where there is less memory, it alone is refused."""
    (found,) = prepare(preparation, webp(5_000))
    assert isinstance(found, Prepared)
    small = PictureDecoder(max_pixels=MAX_PIXELS, processes=2)
    small.pool._arguments = ("100000000", *small.pool._arguments[1:])
    try:
        refused, taken = prepare(small, webp(5_000), png(56, 56))
    finally:
        small.close()
    assert isinstance(refused, TooLarge | UnreadablePicture)
    assert isinstance(taken, Prepared)


def test_many_large_pictures_are_refused_and_small_ones_are_not(
    preparation: PictureDecoder,
) -> None:
    """By what their headers announce, before anything is decoded; those that left do not count."""

    async def scenario() -> int:
        tasks = [asyncio.create_task(preparation.decode([webp(5_000)], FRAME)) for _ in range(66)]
        await asyncio.sleep(0)
        (small,) = await preparation.decode([png(56, 56)], FRAME)
        assert isinstance(small, Prepared)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        return len([one for one in outcomes if isinstance(one, Busy)])

    assert 1 == asyncio.run(scenario())


def test_a_picture_whose_process_is_killed_is_not_refused(preparation: PictureDecoder) -> None:
    """As a machine without memory kills it: the picture is good, and may be sent again."""

    async def scenario() -> Prepared | Problem:
        await preparation.decode([webp(1_001)], FRAME)
        pid, _ = await preparation.pool.run(60, os.getpid)
        uploads = [*2 * [webp(5_000)], png(56, 56)]
        decoding = asyncio.create_task(preparation.decode(uploads, FRAME))
        while preparation.pool.idle:  # noqa: ASYNC110  it sets no event
            await asyncio.sleep(0)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(Unavailable):
            await decoding
        for _ in range(5):
            await asyncio.sleep(0)
        assert {asyncio.current_task()} == asyncio.all_tasks()
        (found,) = await preparation.decode([webp(5_000)], FRAME)
        return found

    assert isinstance(asyncio.run(scenario()), Prepared)
