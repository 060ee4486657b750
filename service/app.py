"""The composition root: everything else takes what it needs as arguments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline

from model.runtime.cpu import cpu_quota
from service import VERSION
from service.api.routes import TAGS, api_routes, largest_job
from service.http.keys import Access
from service.http.middleware import Exchange, cross_origin
from service.http.openapi import complete
from service.http.pages import StaticMount, show_docs, show_page
from service.http.route import Route
from service.inference.bundles import Bundles, load_runtimes
from service.inference.engine import Engine
from service.inference.engine import open_engine as open_local
from service.inference.job import Admission
from service.inference.remote import Remote
from service.lifecycle import Lifecycle
from service.pictures.preparation import Preparation
from service.settings import Settings
from service.telemetry.metrics import Metrics
from service.telemetry.tracing import telemetry
from service.views import open_pool as open_drawing

CLOSE_TIMEOUT_S = 5
"""How long the last inference may take to end, once nobody waits for it any more."""

_DESCRIPTION = """\
Send an image (PNG, JPEG, WebP, BMP, GIF) as a form's `file`, as the raw body, or as base64 in JSON:

    curl -F file=@7.png localhost:8000/classify
    curl -H 'Content-Type: image/png' --data-binary @7.png localhost:8000/classify

Routes that draw answer with a PNG where `Accept` prefers `image/png`. Misspelt parameters and
fields are refused. Errors are problem details (RFC 9457). Every route is also under `/v1`. The
examples of answers are real ones, with long lists and images cut short. "The paper" is Sabour,
Frosst and Hinton, Dynamic Routing Between Capsules (2017).
"""


def create_app(settings: Settings, engine: Engine | None = None) -> FastAPI:
    """Wire the service.

    Args:
        settings: of this process.
        engine: where inference happens; without one, `app.state.bundles` is to load it.

    Raises:
        service.settings.SettingsError: the API keys cannot be used, or traces cannot be sent.
    """
    lifecycle = Lifecycle()
    admission = Admission(max(settings.max_waiting_rows, largest_job(settings.max_pictures)))
    metrics = Metrics(lambda: admission.waiting)
    preparation = Preparation(max_pixels=settings.max_pixels, processes=settings.decode_processes)
    drawing = open_drawing()
    bundles = Bundles(_opener(settings, lifecycle, metrics), metrics.note_engine)
    access = Access(settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        preparation.start()
        yield
        preparation.close()
        drawing.close()
        if not bundles.close(CLOSE_TIMEOUT_S):
            lifecycle.fail(f"the last inference did not end within {CLOSE_TIMEOUT_S} s")

    app = FastAPIOffline(
        title="CapsNet service",
        summary="Interpret capsule networks.",
        description=_DESCRIPTION,
        version=VERSION,
        openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items()],
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would repeat any Host
        lifespan=lifespan,
        telemetry=telemetry(settings),
    )
    app.state.settings = settings
    app.state.bundles, app.state.reload = bundles, bundles.reload
    app.state.admission, app.state.preparation = admission, preparation
    app.state.drawing = drawing
    app.state.metrics, app.state.lifecycle = metrics, lifecycle
    page = partial(Route, "GET", needs_networks=False, include_in_schema=False)
    pages = [page("/", show_page, permission="open"), page("/docs", show_docs), StaticMount()]
    app.router.routes[:0] = [*api_routes(access, max_images=settings.max_pictures), *pages]
    complete(app)
    # Instead of Starlette's and FastAPI's own middleware: Exchange answers all errors.
    exchange = Exchange(app.router, access, settings, metrics=metrics, lifecycle=lifecycle)
    app.middleware_stack = cross_origin(exchange, settings.cors_origins)
    if engine is not None:
        bundles.use(engine)
    return app


def _opener(
    settings: Settings, lifecycle: Lifecycle, metrics: Metrics
) -> Callable[..., Awaitable[Engine]]:
    """What opens the bundles: in this process, or by way of another's socket."""
    thread = ThreadPoolExecutor(1, "loading")

    def load(strict: bool) -> Engine:  # noqa: FBT001
        cores, workers = settings.threads or cpu_quota(), max(1, settings.workers)
        return open_local(
            load_runtimes(settings, strict=strict, workers=workers),
            on_batch=metrics.note_batch,
            on_lost=lifecycle.lose,
            one_core=cores <= workers,
        )

    async def open_engine(
        path: Path | None, *, strict: bool, on_lost: Callable[[Remote], object]
    ) -> Engine:
        if path is None:
            return await asyncio.get_running_loop().run_in_executor(thread, load, strict)
        remote = await Remote(on_lost).connect(path)
        return Engine(remote, remote.loaded)

    return open_engine
