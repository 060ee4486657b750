"""Read pictures from requests: multipart files, a raw body, or base64 in JSON."""

from __future__ import annotations

import binascii
import sys
from collections.abc import AsyncGenerator
from typing import Any

from pydantic_core import from_json
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from model.views.net import run
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
"""The header of a form may have this many bytes: reading takes the square of its length."""
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


class _FormParser(MultiPartParser):
    """Keeps files in memory, so it never waits for a disk."""

    spool_max_size = sys.maxsize


def _read_form(header: str, body: bytes, max_pictures: int) -> list[Upload]:
    """The pictures of a form."""
    if len(header) > _MAX_HEADER_BYTES:
        text = f"the form cannot be read: a header has over {_MAX_HEADER_BYTES:,} bytes"
        raise MalformedRequest(text)

    boundary = parse_options_header(header)[1].get(b"boundary")
    if not boundary or not body.rstrip().endswith(b"--%b--" % boundary):
        raise MalformedRequest("the form cannot be read: its boundary or its end is missing")
    form = run(_parse_form(header, body, max_pictures))
    try:
        parts = form.multi_items()
        if {name for name, _ in parts} != {FILE_FIELD}:
            fields = ", ".join(sorted({repr(name) for name, _ in parts})) or "none"
            raise MalformedRequest(
                f"the form's picture field is {FILE_FIELD!r} (repeatable); found {fields}",
                parameter=FILE_FIELD,
            )
        return [_file(part) for _, part in parts]
    finally:
        run(form.close())


async def _parse_form(header: str, body: bytes, max_pictures: int) -> FormData:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = _FormParser(
        Headers({"content-type": header}),
        stream(),
        max_files=max_pictures + _MAX_OTHER_FIELDS,
        max_fields=_MAX_OTHER_FIELDS,
    )
    try:
        return await parser.parse()
    except MultiPartException as error:
        kind = TooLarge if error.message.startswith("Too many") else MalformedRequest
        raise kind(f"the form cannot be read: {error.message}") from error


def _file(part: UploadFile | str) -> Upload:
    if isinstance(part, str):
        text = f"the form's field {FILE_FIELD!r} holds text, not a file"
        return MalformedRequest(text, parameter=FILE_FIELD)
    return part.file.read()


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
