"""Pools of processes that decode and fit uploads, and that can be killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image

from model.preprocess import Prepared
from model.preprocess.header import Header, read_header
from model.preprocess.reader import check_size
from service.errors import Problem, TooLarge, UnreadablePicture
from service.pictures.spec import (
    ImageSpec,
    Upload,
    decode_and_fit,
    decode_in_process,
    is_quick,
    read_decoded,
)
from service.pool.pool import Crashed, ForkServer, Pool
from service.telemetry import timings

_LARGE_PIXELS = 1_000_000
"""Files with more pixels, or bytes, have processes of their own, so that others need not wait."""
_MIN_PIXELS = 20_000
"""This many pixels take as long as the way to a process and back."""
_MAX_WAITING, _MAX_LARGE_WAITING = 256, 64
"""So many small files may wait, and so many large ones, each a third of a second. Beyond that, the
caller that has most of them is refused."""
_MAX_TOGETHER = 16
"""One request may have this many files of the largest size: a body has room for ten photographs."""
_HEADERS_AT_ONCE = 4
"""The headers of this many files are read at once; each may take half a millisecond."""
_CPU_S, _CPU_S_PER_PIXEL = 0.5, 2e-7
"""The CPU time for a file: ten times what a photograph takes, where the host is quiet."""
_MEMORY_BYTES, _MEMORY_BYTES_PER_PIXEL = 64_000_000, 16
"""The memory for a file: four copies of the largest picture, which WebP needs."""


class Weighed(NamedTuple):
    """A file whose header was read."""

    content: bytes
    header: Header
    weight: int = 0
    """The cost of decoding it, in pixels; 0 where the event loop decodes it at once."""


class DecodePools:
    """Decodes and fits uploads: tiny plain ones on the event loop, others in two pools.

    Files over a megapixel, or a megabyte, have half of the processes. Files are not decoded if
    their headers announce more than may be.
    """

    def __init__(self, *, max_pixels: int, processes: int) -> None:
        self._max_pixels = max_pixels
        self._largest = max(max_pixels, _LARGE_PIXELS)
        self._processes = processes
        self._weighing = asyncio.Lock()
        memory_bytes = _MEMORY_BYTES + _MEMORY_BYTES_PER_PIXEL * max_pixels
        self.fork_server = ForkServer("service.pictures.spec", memory_bytes=memory_bytes)
        large = max(1, processes // 2)
        self.large = Pool(self.fork_server, processes=large, limit=_MAX_LARGE_WAITING)
        small = max(1, processes - large)
        self.small = Pool(self.fork_server, processes=small, limit=_MAX_WAITING)

    def start(self) -> None:
        """Start the process that forks the others, and load Pillow's formats, before files come.

        Later a worker may have no descriptor left for either.
        """
        Image.preinit()
        self.fork_server.start()

    async def decode(
        self, uploads: Sequence[Upload | Weighed], spec: ImageSpec
    ) -> list[Prepared | Problem]:
        """Decode and fit each upload. An upload that cannot be decoded yields its problem.

        A request decodes at most as many files at once as there are processes, so that other
        requests get their turn.

        Raises:
            TooLarge: the request's large files have too many pixels together.
            Busy: too much waits to be decoded.
            Unavailable: a process was killed or cannot be started.
        """
        began = time.monotonic()
        try:
            return await self._decode_all(await self.weigh(uploads, spec), spec)
        finally:
            timings.record("preprocess", time.monotonic() - began)

    async def weigh(
        self, uploads: Sequence[Upload | Weighed], spec: ImageSpec
    ) -> list[Weighed | Problem]:
        """The files with their headers, or the problem of each that its header rules out.

        A request of several parts takes turns with others, and short requests go first.
        """
        if len(uploads) <= _HEADERS_AT_ONCE:
            return [self._weigh(upload, spec) for upload in uploads]
        weighed: list[Weighed | Problem] = []
        for start in range(0, len(uploads), _HEADERS_AT_ONCE):
            async with self._weighing:
                part = uploads[start : start + _HEADERS_AT_ONCE]
                weighed += [self._weigh(upload, spec) for upload in part]
                await asyncio.sleep(0)
        return weighed

    async def _decode_all(
        self, files: Sequence[Weighed | Problem], spec: ImageSpec
    ) -> list[Prepared | Problem]:
        if len(files) == 1 and not isinstance(files[0], Problem) and not files[0].weight:
            return [await self._decode(files[0], spec)]
        weights = [file.weight for file in files if isinstance(file, Weighed)]
        most = _MAX_TOGETHER * self._largest
        if sum(weight for weight in weights if weight > _LARGE_PIXELS) > most:
            raise TooLarge(f"the large pictures of a request may have {most:,} pixels together")
        at_once = asyncio.Semaphore(self._processes)

        async def decode_one(file: Weighed | Problem) -> Prepared | Problem:
            if isinstance(file, Problem):
                return file
            async with at_once:
                if not file.weight:
                    await asyncio.sleep(0)  # others are served between quick ones
                return await self._decode(file, spec)

        tasks = [asyncio.ensure_future(decode_one(file)) for file in files]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # nobody waits for the others if a process was lost
                task.cancel()

    def close(self) -> None:
        """End the processes."""
        self.small.close()
        self.large.close()

    def _pool(self, weight: int) -> Pool | None:
        """Return the pool that decodes a file of this weight; None if the event loop does."""
        if not weight:
            return None
        return self.large if weight > _LARGE_PIXELS else self.small

    def _weigh(self, upload: Upload | Weighed, spec: ImageSpec) -> Weighed | Problem:
        """Read a file's header, which decides what decoding it costs."""
        if not isinstance(upload, bytes):
            return upload
        if is_quick(upload, spec):
            _, height, width = spec.shape
            return Weighed(upload, Header("PNG", width, height))
        try:
            header = read_header(upload)
            check_size(header.width, header.height, max_pixels=self._max_pixels)
        except Problem as problem:
            return problem.with_traceback(None)
        weight = max(header.width * header.height, len(upload), _MIN_PIXELS)
        return Weighed(upload, header, min(weight, self._largest))

    async def _decode(self, file: Weighed, spec: ImageSpec) -> Prepared | Problem:
        pool, limits = self._pool(file.weight), (file.header, spec, self._max_pixels)
        if pool is None:
            return decode_and_fit(file.content, *limits)
        cpu_s = _CPU_S + _CPU_S_PER_PIXEL * file.weight
        try:
            result = await pool.run(cpu_s, decode_in_process, *limits, file=file.content)
            facts, content = result if isinstance(result, tuple) else (result, b"")
            return read_decoded(facts, content, spec)
        except MemoryError:
            return TooLarge("decoding the picture takes more memory than its size allows")
        except (Crashed, KeyError, OverflowError, TypeError, ValueError):
            detail = f"decoding the picture takes more than {cpu_s:.1f} s, or crashes"
            return UnreadablePicture(detail)
