"""The playground: one page and its files, from this service alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

FOLDER = Path(__file__).parent / "static"
_ASK_AGAIN = "no-cache"
"""Kept, but not used without asking: the page's modules have to be of one release."""


class _Files(StaticFiles):
    """Files whose copies in browsers are used only if they are still the same."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Answer with one file, or with 304."""
        answer = super().file_response(*args, **kwargs)
        answer.headers["Cache-Control"] = _ASK_AGAIN
        return answer


def add_page(app: FastAPI) -> None:
    """Serve the page at `/` and its files under `/static`."""
    app.mount("/static", _Files(directory=FOLDER), name="static")

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(FOLDER / "index.html", headers={"Cache-Control": _ASK_AGAIN})
