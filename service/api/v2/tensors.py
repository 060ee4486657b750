"""Tensors of the Open Inference Protocol, as JSON and as bytes."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.errors import InvalidParameter, MalformedRequest, TooLarge, unwrap
from service.http.request import decode_base64

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


class SentTensor(NamedTuple):
    """An input as a client sends it."""

    name: str
    datatype: str
    shape: list[int]
    values: memoryview | list[Any]
    """Raw bytes; or the values in JSON, in nested lists or a flat one."""


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

    def describe(self) -> dict[str, Any]:
        """Its metadata."""
        return {"name": self.name, "datatype": self.datatype, "shape": [-1, *self.row]}

    def read(self, sent: SentTensor, max_rows: int) -> Tensor:
        """The tensor of this input. Raw numbers are not copied if the processor can read them.

        Where a row is one value, the shape may be (N) in place of (N, 1). Elements of BYTES are
        base64 in JSON.

        Raises:
            InvalidParameter: the datatype, the shape, the number of values or a value is wrong.
            TooLarge: there are too many rows.
            MalformedRequest: raw bytes have not the size of the shape, or an element is not base64.
        """
        rows = self._count_rows(sent, max_rows)
        if isinstance(sent.values, memoryview):
            if self.datatype == "BYTES":
                return self._split(sent.values, rows)
            array = self._from_bytes(sent.values, rows)
        else:
            values = self._flatten(sent.values, rows)
            if self.datatype == "BYTES":
                return [unwrap(decode_base64(file)) for file in values]
            array = self._from_json(values)
        low, high = array.min(), array.max()
        if not self.low <= low <= high <= self.high:  # NaN is in no range
            raise self.refuse(
                f"values are finite and from {self.low:g} to {self.high:g}; "
                f"found {low:g} to {high:g}"
            )
        return array.reshape(rows, *self.row)

    def to_bytes(self, tensor: Tensor) -> bytes:
        """The tensor as it stands in a body."""
        if isinstance(tensor, list):
            return b"".join(LENGTH.pack(len(item)) + item for item in tensor)
        content: bytes = tensor.astype(_DTYPES[self.datatype], copy=False).tobytes()
        return content

    def refuse(self, reason: str) -> InvalidParameter:
        """The problem with an input."""
        return InvalidParameter(f"{self.name}: {reason}", parameter=self.name)

    def _count_rows(self, sent: SentTensor, max_rows: int) -> int:
        if sent.datatype != self.datatype:
            raise self.refuse(f"the datatype is {self.datatype}, not {sent.datatype[:16]}")
        rows, *row = sent.shape or [0]
        if rows < 1 or (tuple(row) != self.row and (row or self.row != (1,))):
            wanted = ", ".join(map(str, ("N", *self.row)))
            raise self.refuse(f"the shape is ({wanted}) with N >= 1, not {sent.shape[:8]}")
        if rows > max_rows:
            raise TooLarge(f"{self.name}: at most {max_rows} rows per request, not {rows}")
        return rows

    def _from_bytes(self, content: memoryview, rows: int) -> NDArray[Any]:
        dtype = _DTYPES[self.datatype]
        size = rows * self.values * dtype.itemsize
        if len(content) != size:
            raise MalformedRequest(
                f"{self.name}: {rows} rows have {size:,} bytes, not {len(content):,}",
                parameter=self.name,
            )
        return np.require(np.frombuffer(content, dtype), requirements="A")

    def _flatten(self, data: list[Any], rows: int) -> list[Any]:
        while data and set(map(type, data)) == {list}:
            data = list(chain.from_iterable(data))
        if len(data) != rows * self.values:
            raise self.refuse(f"{rows * self.values} values are announced, not {len(data)}")
        return data

    def _from_json(self, data: list[Any]) -> NDArray[Any]:
        problem = self.refuse(f"data holds values that are not {self.datatype}")
        if not set(map(type, data)) <= _NUMBERS[self.datatype]:
            raise problem
        try:
            values = np.array(data, np.float64 if self.datatype == "FP32" else np.int64)
        except OverflowError as error:
            raise problem from error
        with np.errstate(over="ignore"):  # what is no float32 is refused as out of range
            return values.astype(_DTYPES[self.datatype])

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
