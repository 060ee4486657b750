"""The playground, Swagger UI and the documentation, all from files of this service alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette import staticfiles
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount

from service.errors import NotFound
from service.http.answers import JSON
from service.http.keys import Permission
from service.http.middleware import PAGE_POLICY

FOLDER = Path(__file__).parents[1] / "static"
DOCUMENTATION = Path(__file__).parents[2] / "site"
"""The site that `make docs` builds; `make serve` and the image build it too."""
_ASK_AGAIN = {"Cache-Control": "no-cache"}
"""Browsers keep a file, but ask whether it has changed: the page's modules must be of one release.
"""
_POLICY_HEADER = "Content-Security-Policy"
_DOCS_POLICY = PAGE_POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
"""The policy of Swagger UI, which has inline styles."""
_SITE_POLICY = _DOCS_POLICY.replace("script-src 'self'", "script-src 'self' 'unsafe-inline'")
"""The policy of MkDocs' theme, which has inline scripts too. No page holds what a client sends."""


class StaticFiles(staticfiles.StaticFiles):
    """Serves files that browsers keep, but revalidate before each use.

    Args:
        folder: that they are in.
        headers: of each answer with a file.
    """

    def __init__(self, folder: Path, headers: Mapping[str, str]) -> None:
        super().__init__(directory=folder, check_dir=False)
        self.folder, self.headers = folder, {**_ASK_AGAIN, **headers}

    async def check_config(self) -> None:
        """Check the folder at each request until it exists.

        Raises:
            NotFound: the folder does not exist.
        """
        if not self.folder.is_dir():
            raise NotFound("not built yet: `make docs` in the repository builds the documentation")

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Answer with one file, or with 304."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(self.headers)
        return response


class StaticMount(Mount):
    """Mounts files that need no key: pages must load before they can ask for one."""

    permission: Permission = "public"

    def __init__(self, path: str, folder: Path, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(path, StaticFiles(folder, headers or {}), name=path[1:])


def mounts() -> list[BaseRoute]:
    """The files of the playground, and the documentation."""
    policy = {_POLICY_HEADER: _SITE_POLICY}
    return [
        StaticMount("/static", FOLDER),
        StaticMount("/documentation", DOCUMENTATION, policy),
    ]


async def show_page(_request: Request) -> FileResponse:
    """Give the playground; its files are under `/static`."""
    return FileResponse(FOLDER / "index.html", headers=_ASK_AGAIN)


async def show_documentation(request: Request) -> Response:
    """Redirect to the first page of the documentation, on whatever host was asked."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/documentation/index.html")


async def show_docs(_request: Request) -> FileResponse:
    """Give the page to try the API on."""
    headers = {**_ASK_AGAIN, _POLICY_HEADER: _DOCS_POLICY}
    return FileResponse(FOLDER / "docs.html", headers=headers)


async def show_openapi(request: Request) -> Response:
    """Give the OpenAPI document."""
    document = request.app.state.openapi(request.scope.get("root_path", "").rstrip("/"))
    return Response(document, media_type=JSON)
