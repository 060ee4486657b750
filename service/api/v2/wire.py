"""Bounds of a protobuf message that are checked in its bytes, before it is read.

Two bytes are an empty message, which takes a hundred when it is read; a packed list takes up to
eight times its bytes.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from service.errors import MalformedRequest, TooLarge

MAX_TEXT_BYTES = 1_000
"""A name, an id or any other string may have this many bytes."""
_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED_64: 8, _FIXED_32: 4}
_VARINT_BYTES = 10
_AS_LONG = frozenset({FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_FLOAT})
"""Types that take no more than their bytes."""


def check_fields(message: bytes, descriptor: Any, *, max_fields: int) -> None:
    """Refuse a message that would take much more than its bytes.

    Args:
        message: not read yet.
        descriptor: of its type.
        max_fields: fields of the message and of those in it; of a packed list, so many values.

    Raises:
        MalformedRequest: it is no protobuf message.
        TooLarge: it has more fields or values, or a string of more than MAX_TEXT_BYTES.
    """
    waiting, fields = [(memoryview(message), descriptor)], 0
    while waiting:
        content, kind = waiting.pop()
        position = 0
        while position < len(content):
            fields += 1
            if fields > max_fields:
                raise TooLarge(f"a message has at most {max_fields:,} fields")
            number, wire, start, end = _read_field(content, position)
            field = kind.fields_by_number.get(number)
            if wire == _LENGTH and field is not None:
                if field.message_type:
                    waiting.append((content[start:end], field.message_type))
                else:
                    _check_length(field, end - start, max_fields)
            position = end


def _check_length(field: Any, size: int, max_values: int) -> None:
    if field.type == field.TYPE_STRING and size > MAX_TEXT_BYTES:
        raise TooLarge(f"{field.name}: a string has at most {MAX_TEXT_BYTES:,} bytes")
    if field.type not in _AS_LONG and size > _VARINT_BYTES * max_values:
        raise TooLarge(f"{field.name}: a list has at most {max_values:,} values")


def _read_field(content: memoryview, position: int) -> tuple[int, int, int, int]:
    """Read the number and wire type of a field, and where its content begins and ends."""
    tag, start = _read_varint(content, position)
    wire = tag & 7
    if wire == _LENGTH:
        size, start = _read_varint(content, start)
        end = start + size
    elif wire == _VARINT:
        _, end = _read_varint(content, start)
    elif wire in _FIXED_BYTES:
        end = start + _FIXED_BYTES[wire]
    else:
        raise MalformedRequest(f"the message has a field of wire type {wire}")
    if end > len(content):
        raise MalformedRequest("the message ends within a field")
    return tag >> 3, wire, start, end


def _read_varint(content: memoryview, position: int) -> tuple[int, int]:
    """An integer of 7 bits a byte, and where it ends."""
    value = 0
    for shift, byte in enumerate(content[position : position + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, position + shift + 1
    raise MalformedRequest("the message ends within an integer, or has one that is too long")
