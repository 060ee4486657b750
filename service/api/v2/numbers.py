"""Read and write lists of numbers in JSON without a Python object for each number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import DTypeLike, NDArray
from pydantic_core import to_json

_DATA = re.compile(rb'"data"\s{0,99}:\s{0,99}(?=\[[\[\s]{0,99}[-\dNI])')
"""Before a list, perhaps of lists, that begins with a number."""
_NUMERIC = re.compile(rb"[\[\]\d\s.,eE+\-NaInfity]*")
_REST = b"0123456789.eE+-NaInfity \t\r\n"
"""What numbers consist of; some writers of JSON have NaN and Infinity."""
_TO_SPACES = bytes.maketrans(b"[]\t\r\n", b"     ")
_UNEVEN = "the lists in data differ in length or depth"
_MAX_AXES, _MAX_LISTS = 8, 64
_PIECE = 1 << 13
"""This many bytes are read, and values written, at once: other threads run in between."""


class Numbers:
    """A list of numbers, perhaps nested, as it stands in JSON.

    Numbers are read as C reads them: `01` and `+1` too.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text

    def shape(self) -> list[int]:
        """The shape of the nested lists.

        Raises:
            ValueError: they differ in length or depth.
        """
        pieces = (self._text[start:end] for start, end in _pieces(len(self._text)))
        skeleton = b"".join(piece.translate(None, _REST) for piece in pieces)
        start = len(skeleton) - len(skeleton.lstrip(b"[")) - 1
        if start >= _MAX_AXES:
            raise ValueError(_UNEVEN)
        unit = skeleton[start : skeleton.find(b"]") + 1]
        shape = [unit.count(b",") + 1]
        while start:
            start -= 1
            end = skeleton.find(b"]" * (len(shape) + 1)) + len(shape) + 1
            count = (end - start - 1) // (len(unit) + 1)
            unit = b"[" + b",".join([unit] * count) + b"]"
            shape.insert(0, count)
            if skeleton[start:end] != unit:
                break
        if skeleton != unit:
            raise ValueError(_UNEVEN)
        return shape

    def to_array(self, count: int, dtype: DTypeLike) -> NDArray[np.generic]:
        """The values as a flat array.

        Raises:
            ValueError: there are more or fewer, or some are no numbers of this type.
        """
        if np.issubdtype(dtype, np.integer) and re.search(rb"[.eENI]", self._text):
            raise ValueError("not all are whole numbers")
        parts, begin = [], 0
        while begin < len(self._text):
            end = self._text.find(b",", begin + _PIECE)
            end = len(self._text) if end < 0 else end
            piece = self._text[begin:end].translate(_TO_SPACES).strip()
            parts.append(np.fromstring(piece, dtype, sep=" , "))
            begin = end + 1
        values = np.concatenate(parts)
        if len(values) != count:
            raise ValueError("some are no numbers")
        return values


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    return pairwise([*range(0, size, _PIECE), size])


def take_numbers(text: bytes) -> tuple[bytes, list[Numbers]]:
    """Replace each list of numbers called `data` by its index. Return the JSON and the lists."""
    kept, lists, position = [], list[Numbers](), 0
    while len(lists) < _MAX_LISTS and (found := _DATA.search(text, position)):
        end = start = found.end()
        while (further := _NUMERIC.match(text, end, end + _PIECE)) and further.end() > end:
            end = further.end()
        content = text[start:end].rstrip(b", \t\r\n")
        if content.endswith(b"]"):
            kept += [text[position:start], b"%d" % len(lists)]
            lists.append(Numbers(content))
            position = start + len(content)
        else:
            kept.append(text[position:start])
            position = start
    return b"".join([*kept, text[position:]]), lists


def write_numbers(array: NDArray[np.generic]) -> bytes:
    """An array as a flat list in JSON."""
    flat = array.ravel()
    pieces = (to_json(flat[start:end].tolist()) for start, end in _pieces(flat.size))
    return b"[" + b",".join(piece[1:-1] for piece in pieces) + b"]"
