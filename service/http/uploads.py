"""Read pictures from requests: multipart files, a raw body, or base64 in JSON."""

from __future__ import annotations

import binascii
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import (
    InvalidParameter,
    MalformedRequest,
    TooLarge,
    UnsupportedFormat,
    unwrap,
)
from service.http.request import Request
from service.pictures import Upload

FILE_FIELD = "file"
_MAX_OTHER_FIELDS = 16
"""A form may have this many parts in addition to its pictures. They are refused by name, and beyond
this number without.
"""
_MAX_HEADER_BYTES = 4_096
"""The header of a part may have this many bytes."""
_CHUNK = 1 << 18
"""This many characters of base64 are decoded at once: other threads run in between."""


def content_type(request: Request) -> str:
    """Return the media type of a request's body, without parameters; empty if it has none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_pictures(request: Request, *, max_pictures: int = 0) -> list[Upload]:
    """Read all pictures of a request, in order. By default the settings limit their number.

    Raises:
        MalformedRequest: the body holds no picture, or not what its content type says.
        UnsupportedFormat: the content type is none of the three.
        TooLarge: too many pictures, or a body over the limit.
    """
    context = request.context
    max_pictures = max_pictures or context.settings.max_pictures
    kind = content_type(request)
    if kind in _READERS:
        header, body = request.headers["content-type"], await request.body()
        request.claim.hold(len(body))  # what it expands to
        uploads = await context.slow.run_if_large(
            len(body), _READERS[kind], header, body, max_pictures
        )
    elif kind.startswith("image/") or kind == "application/octet-stream":
        uploads = [await request.body()]
    else:
        raise UnsupportedFormat(
            f"send multipart/form-data with the field {FILE_FIELD!r}, a raw image/* body, or "
            f"application/json; {f'not {kind}' if kind else 'there is no Content-Type'}"
        )
    if len(uploads) > max_pictures:
        raise TooLarge(f"at most {max_pictures} images per request, not {len(uploads)}")
    empty = MalformedRequest("the picture is empty")
    if uploads == [b""]:
        raise empty
    return [empty if upload == b"" else upload for upload in uploads]


async def read_picture(request: Request) -> bytes:
    """The one picture of a request.

    Raises:
        InvalidParameter: there are several.
        Problem: as `read_pictures`.
    """
    first, *others = await read_pictures(request)
    if others:
        raise InvalidParameter("this route takes one image", parameter=FILE_FIELD)
    return unwrap(first)


def _read_form(header: str, body: bytes, max_pictures: int) -> list[Upload]:
    """The pictures of a form."""
    parts = read_form(header, body, max_parts=max_pictures + _MAX_OTHER_FIELDS)
    names = {part.name for part in parts}
    if names != {FILE_FIELD}:
        fields = ", ".join(sorted(map(repr, names))) or "none"
        raise MalformedRequest(
            f"the form's picture field is {FILE_FIELD!r} (repeatable); found {fields}",
            parameter=FILE_FIELD,
        )
    return [_file(part) for part in parts]


def _file(part: Part) -> Upload:
    text = f"the form's field {FILE_FIELD!r} holds text, not a file"
    return part.content if part.is_file else MalformedRequest(text, parameter=FILE_FIELD)


def _read_json(_header: str, body: bytes, max_pictures: int) -> list[Upload]:
    """The pictures of a JSON body.

    One comma stands between two of them, and one in a data URL: a body with more is not even
    parsed, because a million small values take seconds and gigabytes.
    """
    if body.count(b",") >= 2 * max_pictures:
        raise TooLarge(f"at most {max_pictures} images per request")
    try:
        values = from_json(body)
    except ValueError as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from error
    match values:
        case {"image": str(image)} if len(values) == 1:
            return [unwrap(decode_base64(image))]
        case {"images": [_, *_] as images} if len(values) == 1 and _are_strings(images):
            return [decode_base64(image) for image in images]
    raise MalformedRequest('the JSON is {"image": "<base64>"} or {"images": ["<base64>", ...]}')


def _are_strings(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def decode_base64(image: Any) -> Upload:
    """Decode a picture from base64 or a data URL."""
    if not isinstance(image, str):
        return MalformedRequest("a picture is a base64 string", parameter="images")
    encoded = image.partition(",")[2] if image.startswith("data:") else image
    chunks = (encoded[start : start + _CHUNK] for start in range(0, len(encoded), _CHUNK))
    try:
        return b"".join(binascii.a2b_base64(chunk, strict_mode=True) for chunk in chunks)
    except ValueError as error:
        return MalformedRequest(f"the picture is not base64: {error}", parameter="image")


_READERS = {"multipart/form-data": _read_form, "application/json": _read_json}
"""The function that reads a body, by its content type."""


@dataclass
class Part:
    """A file or a text of a form."""

    name: str = ""
    is_file: bool = False
    pieces: list[bytes] = field(default_factory=list)

    @property
    def content(self) -> bytes:
        """The bytes of the file or text."""
        return b"".join(self.pieces)


def read_form(content_type: str, body: bytes, *, max_parts: int) -> list[Part]:
    """The parts of a form, in order.

    Raises:
        MalformedRequest: it is no form, or not a whole one.
        TooLarge: there are more parts.
    """
    boundary = _read_options(content_type.encode("latin-1")).get(b"boundary")
    if not boundary:
        raise MalformedRequest("the form cannot be read: its Content-Type has no boundary")
    reader = _Reader(max_parts)
    try:
        parser = MultipartParser(boundary, reader.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise MalformedRequest(f"the form cannot be read: {error}") from error
    if not reader.ended:
        raise MalformedRequest("the form cannot be read: its end is missing")
    return reader.parts


def _read_options(header: bytes) -> dict[bytes, bytes]:
    """The options of a header that is not too long: reading takes the square of its length."""
    if len(header) > _MAX_HEADER_BYTES:
        text = f"the form cannot be read: a header has over {_MAX_HEADER_BYTES:,} bytes"
        raise MalformedRequest(text)
    return parse_options_header(header)[1]


class _Reader:
    """Collects what the parser finds: methods are named after its callbacks."""

    def __init__(self, max_parts: int) -> None:
        self._max_parts = max_parts
        self._header = [b"", b""]
        self.parts: list[Part] = []
        self.ended = False

    def callbacks(self) -> dict[str, object]:
        """The methods, by the parser's names of them."""
        return {name: getattr(self, name) for name in vars(_Reader) if name.startswith("on_")}

    def on_part_begin(self) -> None:
        if len(self.parts) == self._max_parts:
            raise TooLarge(f"at most {self._max_parts} parts per form")
        self.parts.append(Part())

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0] += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1] += data[start:end]

    def on_header_end(self) -> None:
        name, value = self._header
        self._header = [b"", b""]
        if name.lower() == b"content-disposition":
            options = _read_options(value)
            self.parts[-1].name = options.get(b"name", b"").decode(errors="replace")
            self.parts[-1].is_file = b"filename" in options

    def on_headers_finished(self) -> None:
        if not self.parts[-1].name:
            raise MalformedRequest("the form cannot be read: a part has no name")

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].pieces.append(data[start:end])

    def on_end(self) -> None:
        self.ended = True
