"""What FastAPI cannot read off the routes: request bodies, problems and examples."""

from __future__ import annotations

import base64
from typing import Any

from fastapi import FastAPI

from service.http.middleware import TIMEOUT_HEADER
from service.http.negotiation import PNG
from service.http.problems import MEDIA_TYPE
from service.http.uploads import FILE_FIELD
from service.pictures import SAMPLES

Json = dict[str, Any]
_ENCODED = {"type": "string", "format": "byte", "description": "base64 or a data URL"}
_FILES = {"type": "array", "items": {"type": "string", "format": "binary"}}


def _object(name: str, schema: Json) -> Json:
    return {"type": "object", "required": [name], "properties": {name: schema}}


def _binary(description: str) -> Json:
    return {"schema": {"type": "string", "format": "binary", "description": description}}


def json_body(schema: Json, example: Json, **more: Json) -> Json:
    """A request body of JSON or, by media type, of something else."""
    content = {"application/json": {"schema": schema, "example": example}, **more}
    return {"requestBody": {"required": True, "content": content}}


def picture_body() -> Json:
    """A request body with images, in each way to send one."""
    example = {"image": _sample(7)}
    return json_body({"oneOf": [_ONE, _SEVERAL]}, example, **_FORM, **_RAW)


def two_pictures_body() -> Json:
    """A request body with two images."""
    return json_body(_SEVERAL, {"images": [_sample(3), _sample(5)]}, **_FORM)


def _sample(label: int) -> str:
    return base64.b64encode((SAMPLES / f"{label}.png").read_bytes()).decode()


def png_answer(description: str) -> dict[int | str, Json]:
    """An answer that is a PNG."""
    return {200: {"content": {PNG: _binary(description)}}}


_ONE = _object("image", _ENCODED)
_SEVERAL = _object("images", {"type": "array", "minItems": 1, "items": _ENCODED})
_FORM = {"multipart/form-data": {"schema": _object(FILE_FIELD, _FILES)}}
_RAW = {"image/*": _binary("PNG, JPEG, WebP, BMP or GIF; the first frame counts.")}
TIMEOUT_PARAMETER = {
    "name": TIMEOUT_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "number", "exclusiveMinimum": 0},
    "description": "Seconds after which the answer is of no use (504), at most the service's own. "
    "A request that would wait longer in the queue gets 429 at once.",
}
PROBLEMS: dict[int | str, Json] = {
    statuses: {
        "description": f"{description} (RFC 9457).",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
    }
    for statuses, description in (
        ("4XX", "A problem with the request"),
        ("5XX", "A problem of the service, or a deadline that it missed"),
    )
}


def complete(app: FastAPI) -> None:
    """Have the OpenAPI document say which parameters are in the path, not in the query string."""
    plain = app.openapi

    def openapi() -> Json:
        document = plain()
        for path, operations in document["paths"].items():
            for operation in operations.values():
                for parameter in operation.get("parameters", ()):
                    if f"{{{parameter['name']}}}" in path:
                        parameter.update({"in": "path", "required": True})
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation says
