"""The playground and Swagger UI: pages whose files come from this service alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette import staticfiles
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount

from service.http.keys import Permission
from service.http.middleware import PAGE_POLICY
from service.http.negotiation import JSON

FOLDER = Path(__file__).parents[1] / "static"
_ASK_AGAIN = {"Cache-Control": "no-cache"}
"""Kept, but not used without asking: the page's modules have to be of one release."""
_DOCS_POLICY = PAGE_POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
"""Swagger UI has inline styles."""


class StaticFiles(staticfiles.StaticFiles):
    """Files whose copies in browsers are used only if they are still the same."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Answer with one file, or with 304."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(_ASK_AGAIN)
        return response


class StaticMount(Mount):
    """The page's files, which need no key: the page has to load before it can ask for one."""

    permission: Permission = "open"

    def __init__(self) -> None:
        super().__init__("/static", StaticFiles(directory=FOLDER), name="static")


async def show_page(_request: Request) -> FileResponse:
    """Give the playground; its files are under `/static`."""
    return FileResponse(FOLDER / "index.html", headers=_ASK_AGAIN)


async def show_docs(_request: Request) -> FileResponse:
    """Give the page to try the API on."""
    headers = {**_ASK_AGAIN, "Content-Security-Policy": _DOCS_POLICY}
    return FileResponse(FOLDER / "docs.html", headers=headers)


async def show_openapi(request: Request) -> Response:
    """Give the OpenAPI document."""
    document = request.app.state.openapi(request.scope.get("root_path", "").rstrip("/"))
    return Response(document, media_type=JSON)
