"""A request as a handler receives it: its body and pictures, what it may compute, its deadline."""

from __future__ import annotations

import asyncio
import binascii
import math
import sys
import time
from difflib import get_close_matches
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import fastapi
from pydantic import ValidationError
from pydantic_core import from_json
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, FormParser, parse_options_header
from starlette.types import Receive, Scope, Send

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.views.net import require
from model.views.view import describe_fault
from service.admission import Claim
from service.errors import (
    InvalidParameter,
    MalformedRequest,
    Problem,
    TooLarge,
    Unavailable,
    UnknownModel,
    UnsupportedFormat,
    unwrap,
)
from service.inference.engine import Engine, ServedNet
from service.pictures import Upload

if TYPE_CHECKING:  # the app makes the routes
    from service.app import Context

JSON, PNG = "application/json", "image/png"
TIMEOUT_HEADER = "X-Request-Timeout"
FILE_FIELD = "file"
_MAX_HEADER_BYTES = 4_096
"""The header of a form may have this many bytes: reading takes the square of its length."""
_CHUNK = 1 << 18
"""This many characters of base64 are decoded at once: other threads run in between."""


class Request(fastapi.Request):
    """A request, which is admitted and charged before it computes.

    Args:
        scope: ASGI's, and so are the next two.
        receive: gives the body.
        send: takes the answer.
        max_rows: that a request to this route may have.
    """

    media_type = ""
    """The media type of the answer, negotiated from `Accept`, on routes that negotiate."""
    timeout: asyncio.Timeout | None = None
    """Ends the handling of the request at its deadline."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, max_rows: int = 0) -> None:
        super().__init__(scope, receive, send)
        self.context: Context = scope["app"].state
        self.claim: Claim = scope["state"]["claim"]
        self._max_rows = max_rows

    @cached_property
    def engine(self) -> Engine:
        """What computes it, whatever is loaded meanwhile.

        Raises:
            Unavailable: nothing is loaded yet.
        """
        if self.context.loaded is None:
            reason = self.context.failure or "the service is starting"
            raise Unavailable(reason, retry_after_s=1)
        return self.context.loaded

    @cached_property
    def limit_s(self) -> float:
        """The seconds from the end of the body until the answer has to be ready.

        Raises:
            InvalidParameter: the client asks for no positive number.
        """
        longest_s = self.context.settings.request_timeout_s
        try:
            wanted_s = float(self.headers.get(TIMEOUT_HEADER, longest_s))
        except ValueError:
            wanted_s = math.nan
        if not 0 < wanted_s < math.inf:
            text = f"{TIMEOUT_HEADER} is a positive number of seconds"
            raise InvalidParameter(text, parameter=TIMEOUT_HEADER)
        return min(wanted_s, longest_s)

    def manifest(self, model: str | None, *, needs: Offer | None = None) -> Manifest:
        """The manifest of a loaded bundle, or of the default one.

        Raises:
            UnknownModel: it is not loaded.
            NotOffered: its network cannot do what is needed.
        """
        manifests = self.engine.manifests
        name = model or self.engine.default_model(self.context.settings.default_model)
        if name not in manifests:
            near = get_close_matches(name, manifests, 1)
            hint = "".join(f". Did you mean {known!r}?" for known in near)
            loaded = ", ".join(sorted(manifests))
            raise UnknownModel(f"{name!r} is not loaded; loaded: {loaded}{hint}", parameter="model")
        require(manifests[name], needs)
        return manifests[name]

    async def body(self) -> bytes:
        """Read the whole body from `middleware.Body.receive`, once: it is not kept.

        The deadline starts at its end: the upload has its own time limit.
        """
        content = b"".join([part async for part in self.stream()])
        self.start_deadline()
        return content

    def start_deadline(self) -> None:
        """Let the time run, for the request and its rows, if the route has a limit."""
        if self.timeout:
            limit_s = self.limit_s
            self.claim.deadline = time.monotonic() + limit_s
            self.timeout.reschedule(asyncio.get_running_loop().time() + limit_s)

    def admit(self, rows: int, *, files: int = 0, price: int = 1, relative_size: int = 1) -> None:
        """Admit the request at the cost of its rows, before files are decoded.

        `Route.handle` gives back what is not computed.

        Args:
            rows: of the request.
            files: that are decoded.
            price: of one row: see `Engine.price`.
            relative_size: a factor of the price, where images are larger: see `Claim`.

        Raises:
            Busy, RateLimited, TooLate: see `Claim.admit`.
            ValueError: the route declares fewer, by which the limit of admission is chosen.
        """
        if rows > self._max_rows:
            raise ValueError(f"the route declares at most {self._max_rows} rows, not {rows}")
        self.claim.relative_size = relative_size
        self.claim.admit(rows * price * relative_size, files=files)

    def net(self, manifest: Manifest) -> ServedNet:
        """The network of a manifest, for this request's rows."""
        return ServedNet(manifest, self.engine, self.claim, self.context.slow)


def content_type(request: Request) -> str:
    """Return the media type of a request's body, without parameters; empty if it has none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


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


async def read_pictures(request: Request, *, max_pictures: int = 0) -> list[Upload]:
    """Read all pictures of a request, in order. By default the settings limit their number.

    They are multipart files, base64 in JSON, or the one that is the body.

    Raises:
        MalformedRequest: the body holds no picture, or not what its content type says.
        UnsupportedFormat: the content type is none of the three.
        TooLarge: too many pictures, or a body over the limit.
    """
    context, kind = request.context, content_type(request)
    max_pictures = max_pictures or context.settings.max_pictures
    is_picture = kind.startswith("image/") or kind == "application/octet-stream"
    if not (is_picture or kind in ("multipart/form-data", JSON)):
        raise UnsupportedFormat(
            f"send multipart/form-data with the field {FILE_FIELD!r}, a raw image/* body, or "
            f"application/json; {f'not {kind}' if kind else 'there is no Content-Type'}"
        )
    body = await request.body()
    if is_picture:
        uploads: list[Upload] = [body]
    else:
        request.claim.hold(len(body))  # what it expands to
        read = _read_json if kind == JSON else partial(_read_form, request.headers["content-type"])
        uploads = await context.slow.run_if_large(len(body), read, body, max_pictures)
    if len(uploads) > max_pictures:
        raise TooLarge(f"at most {max_pictures} images per request, not {len(uploads)}")
    empty = MalformedRequest("the picture is empty")
    if uploads == [b""]:
        raise empty
    return [empty if upload == b"" else upload for upload in uploads]


def _read_form(header: str, body: bytes, max_pictures: int) -> list[Upload]:
    """The pictures of a form, which stay in memory. Reading ends at the first part too many."""
    if len(header) > _MAX_HEADER_BYTES:
        text = f"the form cannot be read: a header has over {_MAX_HEADER_BYTES:,} bytes"
        raise MalformedRequest(text)
    boundary = parse_options_header(header)[1].get(b"boundary")
    if not boundary or not body.rstrip().endswith(b"--%b--" % boundary):
        raise MalformedRequest("the form cannot be read: its boundary or its end is missing")
    uploads: list[Upload] = []

    def add(part: Field | File) -> None:
        if (name := part.field_name) != FILE_FIELD.encode():
            raise _lacks_pictures(repr((name or b"").decode(errors="replace")[:64]))
        if len(uploads) == max_pictures:
            raise TooLarge(f"at most {max_pictures} images per request")
        if isinstance(part, File):
            part.file_object.seek(0)
            uploads.append(part.file_object.read())
        else:
            text = f"the form's field {FILE_FIELD!r} holds text, not a file"
            uploads.append(MalformedRequest(text, parameter=FILE_FIELD))

    config = {"MAX_MEMORY_FILE_SIZE": sys.maxsize}
    parser = FormParser("multipart/form-data", add, add, boundary=boundary, config=config)
    try:
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise MalformedRequest(f"the form cannot be read: {error}") from error
    if not uploads:
        raise _lacks_pictures("none")
    return uploads


def _lacks_pictures(found: str) -> MalformedRequest:
    text = f"the form's picture field is {FILE_FIELD!r} (repeatable); found {found}"
    return MalformedRequest(text, parameter=FILE_FIELD)


def _read_json(body: bytes, max_pictures: int) -> list[Upload]:
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


def invalid(error: ValidationError) -> Problem:
    """Make a problem of the first error in a query or a body."""
    fault = describe_fault(error)
    if fault.parameter is None:  # the body as a whole: no JSON, or not an object
        return MalformedRequest(f"the body: {fault.detail}")
    return fault
