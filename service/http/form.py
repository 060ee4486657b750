"""A form (multipart/form-data, RFC 7578), read in memory from a body that is already bounded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.errors import MalformedRequest, TooLarge

_MAX_HEADER_BYTES = 4_096
_BOUNDARY = re.compile(
    r"multipart/form-data; ?boundary=(?P<boundary>[\w'()+.:/=?-]{1,70})", re.ASCII
)
_HEAD = re.compile(
    rb"--(?P<boundary>[\w'()+.:/=?-]{1,70})\r\n"
    rb'Content-Disposition: form-data; name="(?P<name>\w+)"; filename="[\w .()-]*"\r\n'
    rb"(?:Content-Type: [\w/+.-]+\r\n)?\r\n"
)
"""The beginning of a form whose first part is a file with a plain name."""


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
    if file := _read_one_file(content_type, body):
        return [file]
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


def _read_one_file(content_type: str, body: bytes) -> Part | None:
    """The only part of a form as clients write it for one file; None if it has another form."""
    stated = _BOUNDARY.fullmatch(content_type)
    head = _HEAD.match(body, 0, _MAX_HEADER_BYTES)
    if not (stated and head and head["boundary"] == stated["boundary"].encode()):
        return None
    delimiter = b"\r\n--" + head["boundary"]
    end = body.find(delimiter, head.end())
    if end < 0 or body[end + len(delimiter) :] not in (b"--", b"--\r\n"):
        return None
    return Part(head["name"].decode(), is_file=True, pieces=[body[head.end() : end]])


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
