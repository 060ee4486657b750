"""The playground: one page and its files, from this service alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette import staticfiles
from starlette.requests import Request
from starlette.responses import FileResponse, Response

FOLDER = Path(__file__).parents[1] / "static"
_ASK_AGAIN = "no-cache"
"""Kept, but not used without asking: the page's modules have to be of one release."""


class StaticFiles(staticfiles.StaticFiles):
    """Files whose copies in browsers are used only if they are still the same."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Answer with one file, or with 304."""
        answer = super().file_response(*args, **kwargs)
        answer.headers["Cache-Control"] = _ASK_AGAIN
        return answer


async def show_page(_request: Request) -> FileResponse:
    """Give the page; its files are under `/static`."""
    return FileResponse(FOLDER / "index.html", headers={"Cache-Control": _ASK_AGAIN})
