"""What FastAPI cannot read off the routes: request bodies, problems, and the page to try them."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import HTMLResponse

from service.problems import MEDIA_TYPE
from service.uploads import FILE_FIELD

SAMPLES = Path(__file__).parent / "samples"
"""One real digit of each class, 28x28 greyscale PNG; folders of other data sets' pictures."""
_SWAGGER_FILES = "/static-offline-docs"
"""Where `FastAPIOffline` serves what Swagger UI is made of."""


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
                },
                "multipart/form-data": {"schema": form},
                "image/*": _binary("PNG, JPEG, WebP, BMP or GIF; the first frame counts."),
            },
        }
    }


def _two_pictures_body() -> dict[str, Any]:
    """Several pictures as anywhere: JSON with `images`, or a form."""
    body = _picture_body()
    content = body["requestBody"]["content"]
    _, several = content["application/json"]["schema"]["oneOf"]
    content["application/json"]["schema"] = several
    del content["image/*"]
    return body


PICTURE_BODY = _picture_body()
TWO_PICTURES_BODY = _two_pictures_body()
PICTURE_OR_PNG: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/png": _binary("Where `Accept` prefers image/png.")}}
}
PNG_ALONE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/png": _binary("There is no other answer.")}}
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    statuses: {
        "description": f"{description} (RFC 9457).",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
    }
    for statuses, description in (
        ("4XX", "A problem with the request"),
        ("5XX", "A problem of the service, or one that it is too late for"),
    )
}


def add_examples(app: FastAPI) -> None:
    """Make the requests with a picture in the OpenAPI document runnable as they stand."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        fresh = app.openapi_schema is None
        document = plain()
        if fresh:
            for operations in document["paths"].values():
                _add_example(operations.get("post", {}))
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation says


def _add_example(operation: dict[str, Any]) -> None:
    content = operation.get("requestBody", {}).get("content", {})
    if "image/*" in content:
        content["application/json"]["example"] = {"image": sample_base64()}
    elif "multipart/form-data" in content:
        images = [sample_base64(3), sample_base64(5)]
        content["application/json"]["example"] = {"images": images}


def add_docs_page(app: FastAPI) -> None:
    """Serve Swagger UI at `/docs`, from this service's own files."""
    page = get_swagger_ui_html(
        openapi_url=str(app.openapi_url),
        title=app.title,
        oauth2_redirect_url=None,
        swagger_js_url=f"{_SWAGGER_FILES}/swagger-ui-bundle.js",
        swagger_css_url=f"{_SWAGGER_FILES}/swagger-ui.css",
        swagger_favicon_url=f"{_SWAGGER_FILES}/favicon.png",
    )
    page.headers["Content-Security-Policy"] = _swagger_policy(bytes(page.body))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return page


def _swagger_policy(page: bytes) -> str:
    """What Swagger UI needs: the page's own inline script, inline styles and embedded pictures."""
    scripts = re.findall(rb"<script>(.*?)</script>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts]
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; connect-src 'self'; form-action 'none'; "
        "frame-ancestors 'none'; base-uri 'none'"
    )
