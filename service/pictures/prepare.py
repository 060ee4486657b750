"""From uploaded bytes to images for the network, on a pool of threads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from model.bundle import PreprocessRule
from model.preprocess import Fit, Polarity, Prepared, PreprocessError, prepare
from service.errors import InvalidParameter, Problem, release
from service.pictures.decode import decode, plain_png_size

Upload = bytes | Problem
"""The bytes of an image file, or why this one of several could not be taken."""
_FEW = 8
"""A request with more images than this has none decoded on the event loop."""


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
        if here and _is_quick(upload, frame):
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


def _is_quick(content: bytes, frame: Frame) -> bool:
    """Whether an image is taken as it is, pixel by pixel: a tenth of a millisecond."""
    _, height, width = frame.shape
    return frame.fit in ("auto", "none") and plain_png_size(content) == (width, height)
