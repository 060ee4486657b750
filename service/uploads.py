"""The three ways to send a picture: multipart files, a raw body, base64 in JSON."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from service.problems import (
    InvalidParameter,
    MalformedRequest,
    Problem,
    TooLarge,
    UnsupportedFormat,
)

FILE_FIELD = "file"

Upload = bytes | Problem
"""A picture's bytes, or why this one of several could not be taken."""


async def read_pictures(request: Request, *, max_pictures: int) -> list[Upload]:
    """All pictures of a request, in order.

    Raises:
        MalformedRequest: the body holds no picture, or not what its content type says.
        UnsupportedFormat: the content type is none of the three.
        TooLarge: too many pictures, or a body over the limit.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        uploads = await _read_form(request, max_pictures=max_pictures)
    elif kind == "application/json":
        uploads = _read_json(await request.body(), max_pictures=max_pictures)
    elif kind.startswith("image/") or kind == "application/octet-stream":
        uploads = [await request.body()]
    else:
        raise UnsupportedFormat(
            f"send multipart/form-data with the field {FILE_FIELD!r}, a raw image/* body, or "
            f"application/json; not {kind or 'a body without a content type'!r}"
        )
    if len(uploads) > max_pictures:
        raise TooLarge(f"a request may hold {max_pictures} pictures, this one has {len(uploads)}")
    if uploads == [b""]:
        raise MalformedRequest("the picture is empty")
    return [
        MalformedRequest("the picture is empty") if upload == b"" else upload for upload in uploads
    ]


async def read_picture(request: Request) -> bytes:
    """The one picture of a request.

    Raises:
        InvalidParameter: there are several.
        Problem: as `read_pictures`.
    """
    uploads = await read_pictures(request, max_pictures=request.app.state.settings.max_pictures)
    if len(uploads) > 1:
        raise InvalidParameter("only /classify takes several pictures", parameter=FILE_FIELD)
    if isinstance(uploads[0], Problem):
        raise uploads[0]
    return uploads[0]


async def _read_form(request: Request, *, max_pictures: int) -> list[Upload]:
    try:
        async with request.form(max_files=max_pictures + 1, max_fields=16) as form:
            files = form.getlist(FILE_FIELD)
            if not files or len(files) < len(form.multi_items()):
                fields = ", ".join(sorted({repr(name) for name in form})) or "none"
                raise MalformedRequest(
                    f"the form's picture field is {FILE_FIELD!r} (repeatable); found {fields}",
                    parameter=FILE_FIELD,
                )
            return [
                await file.read() if isinstance(file, UploadFile) else _refuse_text()
                for file in files
            ]
    except HTTPException as error:
        if error.detail.startswith("Too many files"):
            raise TooLarge(f"a request may hold {max_pictures} pictures") from error
        raise MalformedRequest(f"the form cannot be read: {error.detail}") from error


def _refuse_text() -> Problem:
    return MalformedRequest(
        f"the form's field {FILE_FIELD!r} holds text, not a file", parameter=FILE_FIELD
    )


def _read_json(body: bytes, *, max_pictures: int) -> list[Upload]:
    """The pictures of a JSON body.

    One comma stands between two of them, and one in a data URL: a body with more is not even
    parsed, because a million small values take seconds and gigabytes.
    """
    if body.count(b",") >= 2 * max_pictures:
        raise TooLarge(f"a request may hold {max_pictures} pictures")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from error
    match values:
        case {"image": str(image)} if len(values) == 1:
            upload = _decode_base64(image)
            if isinstance(upload, Problem):
                raise upload
            return [upload]
        case {"images": [_, *_] as images} if len(values) == 1:
            return [_decode_base64(image) for image in images]
    raise MalformedRequest('the JSON is {"image": "<base64>"} or {"images": ["<base64>", ...]}')


def _decode_base64(image: Any) -> Upload:
    """Plain base64 or a data URL."""
    if not isinstance(image, str):
        return MalformedRequest("an image is a base64 string", parameter="images")
    encoded = image.partition(",")[2] if image.startswith("data:") else image
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        return MalformedRequest(f"the image is not base64: {error}", parameter="image")
