"""What FastAPI cannot read off the routes: request bodies and problems in the OpenAPI document."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from service.answers import ProblemDetails
from service.problems import MEDIA_TYPE
from service.uploads import FILE_FIELD

SAMPLES = Path(__file__).parent / "samples"
"""One real digit of each class, 28x28 greyscale PNG."""


def sample_base64(label: int = 7) -> str:
    """A real digit as base64, for examples that run as they stand."""
    return base64.b64encode((SAMPLES / f"{label}.png").read_bytes()).decode()


def _binary(description: str) -> dict[str, Any]:
    return {"schema": {"type": "string", "format": "binary", "description": description}}


def _picture_body() -> dict[str, Any]:
    encoded = {"type": "string", "format": "byte", "description": "base64 or a data URL"}
    one = {"type": "object", "required": ["image"], "properties": {"image": encoded}}
    several = {
        "type": "object",
        "required": ["images"],
        "properties": {"images": {"type": "array", "minItems": 1, "items": encoded}},
    }
    form = {
        "type": "object",
        "required": [FILE_FIELD],
        "properties": {
            FILE_FIELD: {"type": "array", "items": {"type": "string", "format": "binary"}}
        },
    }
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"oneOf": [one, several]},
                    "example": {"image": sample_base64()},
                },
                "multipart/form-data": {"schema": form},
                "image/*": _binary("PNG, JPEG, WebP, BMP or GIF; the first frame counts."),
            },
        }
    }


PICTURE_BODY = _picture_body()
PICTURE_OR_PNG: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/png": _binary("Where `Accept` prefers image/png.")}}
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "A problem with the request (RFC 9457).",
        "content": {MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}},
    }
}
