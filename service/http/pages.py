"""The playground, Swagger UI and the documentation, all from files of this service alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette import staticfiles
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount

from service.errors import NotFound
from service.http.keys import Permission
from service.http.request import JSON

FOLDER = Path(__file__).parents[1] / "static"
DOCUMENTATION = Path(__file__).parents[2] / "site"
"""The site that `make docs` builds; `make serve` and the image build it too."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
"""The content security policy of pages: everything comes from this service, and nothing is inline.
"""
_DOCS_POLICY = PAGE_POLICY.replace("style-src 'self'", "style-src 'self' 'unsafe-inline'")
"""The policy of Swagger UI, which has inline styles."""
_SITE_POLICY = _DOCS_POLICY.replace("script-src 'self'", "script-src 'self' 'unsafe-inline'")
"""The policy of MkDocs' theme, which has inline scripts too. No page holds what a client sends."""


def _headers(policy: str) -> dict[str, str]:
    """The headers of a page and its files.

    Browsers keep a file, but ask whether it has changed: the page's modules must be of one release.
    """
    return {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": policy,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
    }


class StaticFiles(staticfiles.StaticFiles):
    """Serves the files of pages.

    Args:
        folder: that they are in.
        policy: the content security policy of each.
    """

    def __init__(self, folder: Path, policy: str) -> None:
        super().__init__(directory=folder, check_dir=False)
        self.folder, self.headers = folder, _headers(policy)

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

    def __init__(self, path: str, folder: Path, policy: str) -> None:
        super().__init__(path, StaticFiles(folder, policy), name=path[1:])


def mounts() -> list[BaseRoute]:
    """The files of the playground, and the documentation."""
    return [
        StaticMount("/static", FOLDER, PAGE_POLICY),
        StaticMount("/documentation", DOCUMENTATION, _SITE_POLICY),
    ]


async def show_page(_request: Request) -> FileResponse:
    """Give the playground; its files are under `/static`."""
    return FileResponse(FOLDER / "index.html", headers=_headers(PAGE_POLICY))


async def show_documentation(request: Request) -> Response:
    """Redirect to the first page of the documentation, on whatever host was asked."""
    return RedirectResponse(f"{request.scope.get('root_path', '')}/documentation/index.html")


async def show_docs(_request: Request) -> FileResponse:
    """Give the page to try the API on."""
    return FileResponse(FOLDER / "docs.html", headers=_headers(_DOCS_POLICY))


async def show_openapi(request: Request) -> Response:
    """Give the OpenAPI document."""
    document = request.app.state.openapi(request.scope.get("root_path", "").rstrip("/"))
    return Response(document, media_type=JSON)
