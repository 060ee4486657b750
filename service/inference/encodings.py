"""Encodings of recent images, so that an image that is sent again is not computed again."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from model.preprocess import Floats

Row = tuple[NDArray[np.float32], ...]
_ENTRY_BYTES = 500
"""An entry counts as this many bytes in addition to its arrays."""


class Encodings:
    """Encodings that are kept for a while, and those that are computed now.

    Two requests for one image at the same time share one row. For one event loop alone.

    Args:
        limit_bytes: of what is kept. The entry that was used longest ago gives way. Zero keeps and
            shares nothing.
    """

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self._kept: OrderedDict[Hashable, Row] = OrderedDict()
        self._kept_bytes = 0
        self._running: dict[Hashable, asyncio.Future[Row | Exception]] = {}

    def __repr__(self) -> str:
        return f"Encodings({len(self._kept)} kept, {self._kept_bytes} of {self.limit_bytes} bytes)"

    async def find(
        self, key: Hashable, compute: Callable[[], Awaitable[Row | Exception]]
    ) -> tuple[Row | Exception, bool]:
        """Find a row that is kept, wait for one that is computed, or compute it.

        Args:
            key: of the caller, the network and the image: see `digest`.
            compute: computes the row. If its caller leaves or is too late, the next one computes.

        Returns:
            The row, or the exception that computing it ended with, and whether this call computed
            it.
        """
        while (kept := self._kept.get(key)) is None and (running := self._running.get(key)):
            await asyncio.wait([running])
            if not running.cancelled():
                return running.result(), False
        if kept is not None:
            self._kept.move_to_end(key)
            return kept, False
        future = self._running[key] = asyncio.get_running_loop().create_future()
        try:
            row = await compute()
        except BaseException:
            future.cancel()
            raise
        else:
            future.set_result(row)
            if not isinstance(row, Exception):
                self._keep(key, row)
            return row, True
        finally:
            del self._running[key]

    def _keep(self, key: Hashable, row: Row) -> None:
        copied = tuple(array.copy() for array in row)  # a row is a view of its batch
        for array in copied:
            array.flags.writeable = False
        if key in self._kept:
            self._kept_bytes -= _size(self._kept.pop(key))
        self._kept[key] = copied
        self._kept_bytes += _size(copied)
        while self._kept_bytes > self.limit_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._kept_bytes -= _size(oldest)


def digest(image: Floats) -> Hashable:
    """The digest of an image, with its shape."""
    return image.shape, hashlib.sha256(np.ascontiguousarray(image).data).digest()


def _size(row: Row) -> int:
    return _ENTRY_BYTES + sum(array.nbytes for array in row)
