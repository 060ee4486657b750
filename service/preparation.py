"""From uploaded bytes to images for the network: a pool of threads, and a limit on what waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from model.bundle import Manifest, PreprocessRule
from model.preprocess import Box, Fit, Polarity, Prepared, PreprocessError, prepare
from service.batcher import Full
from service.images import decode, plain_png_size
from service.problems import InvalidParameter, Problem, release
from service.rate import Rate, Refusals
from service.uploads import Upload


@dataclass(frozen=True)
class Fitting:
    """How the sender wants pictures fitted; see `model.preprocess.prepare`."""

    fit: Fit = "auto"
    polarity: Polarity = "auto"


class Frame(NamedTuple):
    """What images pictures are made into."""

    size: int
    """Height and width, in pixels."""
    rule: PreprocessRule

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """The images of a bundle's network."""
        return cls(manifest.image_size, manifest.preprocess)


class Preparation:
    """Decodes and prepares pictures, on threads where that takes longer than the way there.

    Args:
        max_pixels: largest picture.
        max_waiting: pictures that may wait or be at work before `prepare` raises Full.
        threads: of the pool.
    """

    def __init__(self, *, max_pixels: int, max_waiting: int, threads: int) -> None:
        self._max_pixels = max_pixels
        self._max_waiting = max_waiting
        self._threads = threads
        self._waiting = 0
        self._rate = Rate()
        self._refusals = Refusals(self._rate)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="pictures")

    def __repr__(self) -> str:
        return f"Preparation(waiting={self._waiting}, {self._rate.rows_per_s:.0f} pictures/s)"

    @property
    def waiting(self) -> int:
        """Pictures that wait or are at work."""
        return self._waiting

    async def prepare(
        self, uploads: Sequence[Upload], frame: Frame, fitting: Fitting
    ) -> list[Prepared | Problem]:
        """What each upload becomes, or the problem with it.

        Raises:
            Full: there is no room for the pictures; there always is where none waits.
        """
        count = len(uploads)
        if self._waiting and self._waiting + count > self._max_waiting:
            raise Full(self._refusals.retry_after_s(count))
        self._waiting += count
        try:
            if count == 1:
                return [await self._prepare(uploads[0], frame, fitting)]
            return await asyncio.gather(
                *(self._prepare(upload, frame, fitting) for upload in uploads)
            )
        finally:
            self._waiting -= count

    def close(self) -> None:
        """Stop the pool; what still waits there is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _prepare(self, upload: Upload, frame: Frame, fitting: Fitting) -> Prepared | Problem:
        if isinstance(upload, Problem):
            return upload
        if _is_quick(upload, frame, fitting):
            return self._work(upload, frame, fitting)[0]
        loop = asyncio.get_running_loop()
        prepared, seconds = await loop.run_in_executor(
            self._pool, self._work, upload, frame, fitting
        )
        self._rate.note(1, seconds / self._threads)
        return prepared

    def _work(
        self, content: bytes, frame: Frame, fitting: Fitting
    ) -> tuple[Prepared | Problem, float]:
        """One picture, on a thread of the pool, and the seconds that it took."""
        started = time.perf_counter()
        prepared: Prepared | Problem
        try:
            prepared = self._decode_and_fit(content, frame, fitting)
        except PreprocessError as error:
            prepared = InvalidParameter(str(error), parameter="fit")
        except Problem as problem:
            release(problem)
            prepared = problem
        return prepared, time.perf_counter() - started

    def _decode_and_fit(self, content: bytes, frame: Frame, fitting: Fitting) -> Prepared:
        picture, shrink = decode(content, max_pixels=self._max_pixels)
        prepared = prepare(
            picture,
            frame.size,
            rule=frame.rule,
            fit=fitting.fit,
            polarity=fitting.polarity,
        )
        if prepared.box is None:
            return prepared
        return replace(prepared, box=Box(*(round(edge * shrink) for edge in prepared.box)))


def _is_quick(content: bytes, frame: Frame, fitting: Fitting) -> bool:
    """Whether a picture is taken as it is, pixel by pixel: a tenth of a millisecond."""
    as_it_is = fitting.fit in ("auto", "none")
    return as_it_is and plain_png_size(content) == (frame.size, frame.size)
