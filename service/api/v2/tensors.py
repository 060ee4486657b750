"""Tensors of the Open Inference Protocol, as JSON and as bytes."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json

from service.errors import InvalidParameter, MalformedRequest, TooLarge, unwrap
from service.http.uploads import decode_base64

Datatype = Literal["FP32", "INT64", "BYTES"]
Tensor = NDArray[Any] | list[bytes]
"""A tensor of N rows: an array, or one element for each row of datatype BYTES."""
Tensors = dict[str, Tensor]
"""Tensors by name."""
LENGTH = struct.Struct("<I")
"""The length that precedes each element of datatype BYTES."""
_DTYPES: dict[Datatype, np.dtype[Any]] = {"FP32": np.dtype("<f4"), "INT64": np.dtype("<i8")}
_NUMBERS: dict[Datatype, set[type]] = {"FP32": {int, float}, "INT64": {int}}
"""The types of numbers in JSON, in which truth values are no numbers."""
_BINARY_BYTES, _JSON_BYTES = 8, 22
"""The bytes of a value."""


@dataclass(frozen=True)
class TensorSpec:
    """The name, datatype and shape of an input or output. The first axis is the batch."""

    name: str
    datatype: Datatype
    row: tuple[int, ...] = (1,)
    """The shape of one row."""
    low: float = -np.inf
    """The smallest value that is taken."""
    high: float = np.inf
    optional: bool = False
    """An input that may be left out, or an output that is given only if asked for."""

    @property
    def values(self) -> int:
        """The number of values in one row."""
        return math.prod(self.row)

    def answer_bytes(self, rows: int, *, binary: bool) -> int:
        """The bytes that so many rows take in an answer, at most or nearly so."""
        return rows * self.values * (_BINARY_BYTES if binary else _JSON_BYTES)

    def count_rows(self, datatype: str, shape: list[int], *, max_rows: int) -> int:
        """The rows of a tensor that is announced with a datatype and a shape.

        Where a row is one value, the shape may be (N) in place of (N, 1).

        Raises:
            InvalidParameter: they are not those of this input.
            TooLarge: there are too many rows.
        """
        if datatype != self.datatype:
            raise self.refuse(f"the datatype is {self.datatype}, not {datatype[:16]}")
        rows, *row = shape or [0]
        if rows < 1 or (tuple(row) != self.row and (row or self.row != (1,))):
            wanted = ", ".join(map(str, ("N", *self.row)))
            raise self.refuse(f"the shape is ({wanted}) with N >= 1, not {shape[:8]}")
        if rows > max_rows:
            raise TooLarge(f"{self.name}: at most {max_rows} rows per request, not {rows}")
        return rows

    def from_bytes(self, content: memoryview, rows: int) -> Tensor:
        """The tensor in a part of a body, without a copy where the processor can read it there.

        Raises:
            MalformedRequest: it has not the size of so many rows.
            InvalidParameter: a value is out of range.
        """
        if self.datatype == "BYTES":
            return self._split(content, rows)
        dtype = _DTYPES[self.datatype]
        size = rows * self.values * dtype.itemsize
        if len(content) != size:
            raise MalformedRequest(
                f"{self.name}: {rows} rows have {size:,} bytes, not {len(content):,}",
                parameter=self.name,
            )
        array = np.frombuffer(content, dtype).reshape(rows, *self.row)
        return self._check(np.require(array, requirements="A"))

    def from_json(self, data: list[Any], shape: list[int]) -> Tensor:
        """Read a tensor in JSON: nested lists or a flat one. Elements of BYTES are base64.

        Raises:
            MalformedRequest: an element is not base64.
            InvalidParameter: the values are not those of the shape and datatype, or out of range.
        """
        while data and set(map(type, data)) == {list}:
            data = list(chain.from_iterable(data))
        if len(data) != math.prod(shape):
            raise self.refuse(f"{math.prod(shape)} values are announced, not {len(data)}")
        if self.datatype == "BYTES":
            return [unwrap(decode_base64(file)) for file in data]
        if not set(map(type, data)) <= _NUMBERS[self.datatype]:
            raise self.refuse(f"data holds values that are not {self.datatype}")
        try:
            values = np.array(data, np.float64 if self.datatype == "FP32" else np.int64)
        except OverflowError as error:
            raise self.refuse(f"data holds values that are not {self.datatype}") from error
        with np.errstate(over="ignore"):  # what is no float32 is refused as out of range
            numbers = values.astype(_DTYPES[self.datatype])
        return self._check(numbers.reshape(shape[0], *self.row))

    def to_bytes(self, tensor: Tensor) -> bytes:
        """The tensor as it stands in a body."""
        if isinstance(tensor, list):
            return b"".join(LENGTH.pack(len(item)) + item for item in tensor)
        content: bytes = tensor.astype(_DTYPES[self.datatype], copy=False).tobytes()
        return content

    def to_json(self, tensor: Tensor) -> bytes:
        """The tensor as a flat list in JSON."""
        if isinstance(tensor, list):
            return to_json([item.decode() for item in tensor])
        return to_json(tensor.ravel().tolist())

    def refuse(self, reason: str) -> InvalidParameter:
        """The problem with an input."""
        return InvalidParameter(f"{self.name}: {reason}", parameter=self.name)

    def _check(self, array: NDArray[Any]) -> NDArray[Any]:
        low, high = array.min(), array.max()
        if not self.low <= low <= high <= self.high:  # NaN is in no range
            raise self.refuse(
                f"values are finite and from {self.low:g} to {self.high:g}; "
                f"found {low:g} to {high:g}"
            )
        return array

    def _split(self, content: memoryview, rows: int) -> list[bytes]:
        """The elements of a BYTES tensor, each after its length."""
        elements: list[bytes] = []
        while len(elements) < rows and len(content) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(content)[0]
            if end > len(content):
                break
            elements.append(bytes(content[LENGTH.size : end]))
            content = content[end:]
        if len(elements) < rows or content:
            raise MalformedRequest(
                f"{self.name}: its bytes are not {rows} elements, each after its length as a "
                "little-endian 32-bit integer",
                parameter=self.name,
            )
        return elements
