"""Pictures in and out: uploads become images for a network, and views draw figures.

Uploads are untrusted: all but tiny ones are read in processes of a `service.pool.Pool`. Figures
that take long are drawn there.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

import numpy as np
from PIL import Image, PngImagePlugin

from model.preprocess import Fit, Polarity, Prepared, prepare
from model.preprocess.header import Header, is_plain_png, read_header
from model.preprocess.pixels import Box, FoundPolarity
from model.preprocess.reader import MAX_SIDE, check_size, decode
from model.views import MODULES
from service.admission import current_caller, record_stage
from service.errors import (
    InvalidParameter,
    Problem,
    TooLarge,
    UnreadablePicture,
    UnsupportedFormat,
    release,
)
from service.pool import Crashed, Pool
from service.shared import Turns

if TYPE_CHECKING:  # processes that decode do not import pydantic
    from model.bundle import PreprocessRule

SAMPLES = Path(__file__).parent / "samples"
"""The folder of samples: one digit of each class, 28x28 greyscale PNG, and folders of other data
sets.
"""
Upload = bytes | Problem
"""The bytes of an image file, or why this one of several could not be taken."""
_MAX_QUICK_BYTES = 4096
_MAX_TEXT_BYTES = 8_000_000
"""All texts of a PNG may have this many bytes together, decompressed."""
_LARGE_PIXELS = 1_000_000
"""Files with more pixels, or bytes, leave half of the processes to others."""
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
_PROBLEMS = {
    kind.slug: kind for kind in (InvalidParameter, TooLarge, UnreadablePicture, UnsupportedFormat)
}
_FITS = get_args(get_type_hints(Prepared)["fit"])
_POLARITIES = (None, *get_args(FoundPolarity))
DRAW_CPU_S = 10.0
"""A drawing may take this much CPU time."""
MAX_DRAWINGS = 8
"""This many drawings may wait, each a fifth of a second. Beyond that, the caller that has most of
them is refused."""
_DRAWING_BYTES = 500_000_000
"""The memory for a drawing."""


class ImageSpec(NamedTuple):
    """The arguments of `model.preprocess.prepare` by which an upload is fitted."""

    shape: tuple[int, int, int]
    """(C, H, W)."""
    rule: PreprocessRule
    fit: Fit = "auto"
    polarity: Polarity = "auto"
    any_size: bool = False


class Weighed(NamedTuple):
    """A file whose header was read."""

    content: bytes
    header: Header
    weight: int = 0
    """The cost of decoding it, in pixels; 0 where the event loop decodes it at once."""


class PictureDecoder:
    """Decodes and fits uploads: tiny plain ones on the event loop, others in a pool.

    Files over a megapixel, or a megabyte, may have half of the processes. Files are not decoded if
    their headers announce more than may be.
    """

    def __init__(self, *, max_pixels: int, processes: int) -> None:
        self._max_pixels = max_pixels
        self._largest = max(max_pixels, _LARGE_PIXELS)
        self._processes = processes
        self._weighing = asyncio.Lock()
        memory_bytes = _MEMORY_BYTES + _MEMORY_BYTES_PER_PIXEL * max_pixels
        self.pool = Pool(
            __name__, processes=processes, limit=_MAX_WAITING, memory_bytes=memory_bytes
        )
        self._large = Turns(max(1, processes // 2), limit=_MAX_LARGE_WAITING)

    def start(self) -> None:
        """Start the process that forks the others, and load Pillow's formats, before files come.

        Later a worker may have no descriptor left for either.
        """
        Image.preinit()
        self.pool.start()

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
            record_stage("preprocess", time.monotonic() - began)

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

    async def _decode(self, file: Weighed, spec: ImageSpec) -> Prepared | Problem:
        limits = (file.header, spec, self._max_pixels)
        if not file.weight:
            return decode_and_fit(file.content, *limits)
        cpu_s = _CPU_S + _CPU_S_PER_PIXEL * file.weight
        is_large = file.weight > _LARGE_PIXELS
        try:
            async with self._large.turn(current_caller()) if is_large else nullcontext():
                facts, image = await self.pool.run(cpu_s, decode_in_process, file.content, *limits)
            return read_decoded(facts, image, spec)
        except MemoryError:
            return TooLarge("decoding the picture takes more memory than its size allows")
        except (Crashed, KeyError, OverflowError, TypeError, ValueError):
            detail = f"decoding the picture takes more than {cpu_s:.1f} s, or crashes"
            return UnreadablePicture(detail)

    def close(self) -> None:
        """End the processes."""
        self.pool.close()


def is_quick(content: bytes, spec: ImageSpec) -> bool:
    """Whether a file is small and needs no resizing, so that decoding takes about 0.05 ms."""
    if (
        len(content) > _MAX_QUICK_BYTES
        or spec.fit not in ("auto", "none")
        or not is_plain_png(content)
    ):
        return False
    width, height = struct.unpack_from(">II", content, 16)
    return bool((height, width) == spec.shape[1:])


def decode_and_fit(
    content: bytes, header: Header | None, spec: ImageSpec, max_pixels: int
) -> Prepared | Problem:
    """Decode a file and fit it. Return the problem if that fails."""
    try:
        picture, shrink = decode(content, header, max_pixels=max_pixels)
        prepared = prepare(picture, **spec._asdict())
    except Problem as problem:
        return release(problem)
    if prepared.box is None:
        return prepared
    return replace(prepared, box=prepared.box.scaled(shrink, shrink))


def decode_in_process(
    content: bytes, header: Header | None, spec: ImageSpec, max_pixels: int
) -> tuple[dict[str, Any], bytes]:
    """As `decode_and_fit`, as JSON and the image's raw bytes; see `read_decoded`."""
    Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit, in place of that of the settings
    PngImagePlugin.MAX_TEXT_MEMORY = _MAX_TEXT_BYTES
    result = decode_and_fit(content, header, spec, max_pixels)
    if isinstance(result, Problem):
        return {"slug": result.slug, "detail": result.detail, "parameter": result.parameter}, b""
    facts = {"fit": result.fit, "polarity": result.polarity, "box": result.box}
    return {**facts, "shape": result.image.shape}, np.ascontiguousarray(
        result.image, "<f4"
    ).tobytes()


def read_decoded(facts: Any, content: bytes, spec: ImageSpec) -> Prepared | Problem:
    """The image or problem that a process found.

    Raises:
        ValueError, TypeError, KeyError, OverflowError: it is none. The process is not trusted.
    """
    if "slug" in facts:
        parameter = facts["parameter"] and str(facts["parameter"])
        return _PROBLEMS[facts["slug"]](str(facts["detail"]), parameter=parameter)
    channels, height, width = shape = tuple(map(int, facts["shape"]))
    fits = channels == spec.shape[0] and 0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE
    if not (fits and (spec.any_size or shape == spec.shape)):
        raise ValueError(f"a process gave an image of the shape {shape}")
    if facts["fit"] not in _FITS or facts["polarity"] not in _POLARITIES:
        raise ValueError("a process gave an unknown fit")
    image = np.frombuffer(content, "<f4").reshape(shape)
    box = facts["box"] and Box(*map(int, facts["box"]))
    return Prepared(image, facts["fit"], facts["polarity"], box)


def drawing_pool() -> Pool:
    """A pool of one process that draws; a drawing is a function that returns the file's bytes.

    It starts with the first drawing: matplotlib takes 110 MB.
    """
    modules = (*MODULES, "matplotlib.figure", "matplotlib.backends.backend_agg")
    return Pool(*modules, processes=1, limit=MAX_DRAWINGS, memory_bytes=_DRAWING_BYTES)
