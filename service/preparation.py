"""From uploaded bytes to images for the network, on a pool of threads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from model.bundle import Manifest, PreprocessRule
from model.preprocess import Fit, Polarity, Prepared, PreprocessError, prepare
from service.images import decode, plain_png_size
from service.problems import InvalidParameter, Problem, release
from service.uploads import Upload


@dataclass(frozen=True)
class Fitting:
    """How the sender wants pictures fitted; see `model.preprocess.prepare`."""

    fit: Fit = "auto"
    polarity: Polarity = "auto"


class Frame(NamedTuple):
    """What images pictures are made into."""

    shape: tuple[int, int, int]
    """(C, H, W)."""
    rule: PreprocessRule

    @classmethod
    def of(cls, manifest: Manifest) -> Self:
        """The images of a bundle's network."""
        return cls(manifest.image_shape, manifest.preprocess)


_FEW = 8
"""A request with more pictures than this has none decoded on the event loop."""


class Preparation:
    """Decodes and prepares pictures, on threads where that takes longer than the way there.

    Args:
        max_pixels: largest picture.
        threads: of the pool.
    """

    def __init__(self, *, max_pixels: int, threads: int) -> None:
        self._max_pixels = max_pixels
        self._waiting = 0
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="pictures")

    def __repr__(self) -> str:
        return f"Preparation(waiting={self._waiting})"

    @property
    def waiting(self) -> int:
        """Pictures that wait or are at work."""
        return self._waiting

    async def prepare(
        self, uploads: Sequence[Upload], frame: Frame, fitting: Fitting
    ) -> list[Prepared | Problem]:
        """What each upload becomes, or the problem with it.

        Those of one request take turns with others': it has no more at work than there are threads.
        """
        count = len(uploads)
        turns = asyncio.Semaphore(self._threads)

        async def prepare_in_turn(upload: Upload) -> Prepared | Problem:
            async with turns:
                return await self._prepare(upload, frame, fitting, here=count <= _FEW)

        self._waiting += count
        try:
            if count == 1:
                return [await self._prepare(uploads[0], frame, fitting, here=True)]
            return await asyncio.gather(*map(prepare_in_turn, uploads))
        finally:
            self._waiting -= count

    def close(self) -> None:
        """Stop the pool; what still waits there is dropped."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _prepare(
        self, upload: Upload, frame: Frame, fitting: Fitting, *, here: bool
    ) -> Prepared | Problem:
        """On this thread, if it may be and that is quick; else on the pool."""
        if isinstance(upload, Problem):
            return upload
        if here and _is_quick(upload, frame, fitting):
            return self._work(upload, frame, fitting)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._work, upload, frame, fitting)

    def _work(self, content: bytes, frame: Frame, fitting: Fitting) -> Prepared | Problem:
        """One picture."""
        try:
            return self._decode_and_fit(content, frame, fitting)
        except PreprocessError as error:
            return InvalidParameter(str(error), parameter="fit")
        except Problem as problem:
            release(problem)
            return problem

    def _decode_and_fit(self, content: bytes, frame: Frame, fitting: Fitting) -> Prepared:
        picture, shrink = decode(content, max_pixels=self._max_pixels)
        prepared = prepare(
            picture, frame.shape, rule=frame.rule, fit=fitting.fit, polarity=fitting.polarity
        )
        if prepared.box is None:
            return prepared
        return replace(prepared, box=prepared.box.scaled(shrink, shrink))


def _is_quick(content: bytes, frame: Frame, fitting: Fitting) -> bool:
    """Whether a picture is taken as it is, pixel by pixel: a tenth of a millisecond."""
    as_it_is = fitting.fit in ("auto", "none")
    _, height, width = frame.shape
    return as_it_is and plain_png_size(content) == (width, height)
