"""Builds the app, and the context that its parts share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from service import VERSION
from service.admission import Admission
from service.api.routes import TAGS, api_routes, max_view_rows
from service.api.v2.http import TENSOR_HEADER, v2_routes
from service.http.keys import KEY_HEADER, Access
from service.http.middleware import REQUEST_ID, Middleware
from service.http.openapi import complete
from service.http.pages import (
    mounts,
    show_docs,
    show_documentation,
    show_openapi,
    show_page,
)
from service.http.request import TIMEOUT_HEADER
from service.http.route import MODEL_HEADER, NOTES_HEADER, Route, Router
from service.inference.bundles import load_runtimes, trim_memory
from service.inference.engine import Engine, open_engine
from service.pictures import PictureDecoder, drawing_pool
from service.settings import Settings, SettingsError
from service.shared import SlowThread
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 3
"""The last inference may take this long to end after the last request."""
_SENT = ("Authorization", "Content-Type", "Content-Encoding", KEY_HEADER, REQUEST_ID)
_ANSWERED = ("Retry-After", "Server-Timing", MODEL_HEADER, NOTES_HEADER, REQUEST_ID, TENSOR_HEADER)
"""The headers that pages of other origins may send and read, where these are allowed."""
_DESCRIPTION = """\
Send an image (PNG, JPEG, WebP, BMP, GIF, TIFF) as a form's `file`, as the raw body, or as
base64 in JSON:

    curl -F file=@7.png localhost:8000/classify
    curl -H 'Content-Type: image/png' --data-binary @7.png localhost:8000/classify

Routes that show pictures answer with a PNG where `Accept` prefers `image/png`. Misspelt parameters
and fields are refused. Errors are problem details (RFC 9457). Every route is also under `/v1`;
clients of Triton and KServe find theirs under `/v2`. The
[documentation](/documentation/index.html) has tutorials and all the rest. The
examples of answers are real ones, with long lists and images cut short. "The paper" is Sabour,
Frosst and Hinton, Dynamic Routing Between Capsules (2017).
"""


@dataclass
class Context:
    """Everything that routes, protocols and the process use of each other: `app.state`.

    Args:
        settings: of this process.
        max_rows: of the largest request.
        count_workers: gives the number of workers in each state, for the metrics.
    """

    settings: Settings
    _: KW_ONLY
    max_rows: int = 0
    count_workers: Callable[[], Mapping[str, int]] | None = None
    load: Callable[[], Awaitable[Engine]] | None = None
    """Loads the engine."""
    reload: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Has all workers load the bundles anew; None where nothing can."""
    openapi: Callable[[str], bytes] = field(init=False)
    """Gives the OpenAPI document as JSON, for a root path."""
    loaded: Engine | None = None
    """What computes requests, once it is loaded."""
    failure: str | None = None
    """The reason why the process cannot answer any more: `/livez` and `/readyz` say 503."""
    draining: bool = False
    """The service is about to end: `/readyz` says 503, and answers close their connections."""
    has_bundles: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the engine is loaded."""
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once no more connections are accepted."""

    _unfinished: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    """Tasks that the event loop alone would not keep."""

    def __post_init__(self) -> None:
        settings = self.settings
        self.admission = Admission(
            settings.max_waiting_bytes,
            max(settings.max_waiting_rows, self.max_rows),
            cost_per_s=settings.rate_limit_per_key,
            burst_cost=settings.rate_burst_per_key,
        )
        self.metrics = Metrics(self.count_workers)
        self.pictures = PictureDecoder(max_pixels=settings.max_pixels, processes=2)
        self.drawing = drawing_pool()
        self.slow = SlowThread()

    async def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work that goes on if the client leaves. An error that nobody sees is logged."""
        task = asyncio.ensure_future(work)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_log_failure)
            raise

    @property
    def can_answer(self) -> bool:
        """Whether bundles are loaded and nothing has failed."""
        return self.loaded is not None and self.failure is None

    @property
    def running_s(self) -> float:
        """How long the running batch has taken so far, in seconds; 0 if none runs."""
        return self.loaded.batcher.running_s if self.loaded else 0.0

    async def load_and_use(self) -> None:
        """Load the engine and use it. An error is recorded as this process's failure."""
        assert self.load
        try:
            loaded = await self.load()
        except Exception as error:
            log.debug("the bundles cannot be loaded", exc_info=True)
            self.fail(str(error))
            return
        trim_memory()
        self.use(loaded)

    def use(self, loaded: Engine) -> None:
        """Answer requests with an engine from now on."""
        self.loaded = loaded
        self.metrics.record_models(loaded.provider, loaded.manifests)
        self.has_bundles.set()
        log.info("ready: %s with %s", ", ".join(loaded.manifests), loaded.provider)

    def fail(self, reason: str) -> None:
        """Record why the process cannot answer any more; the first reason is kept."""
        self.failure = self.failure or reason

    def check(self) -> None:
        """Record a failure if an inference hangs."""
        limit_s = self.settings.inference_timeout_s
        if self.running_s > limit_s:
            self.fail(f"an inference takes longer than {limit_s:g} s")

    def close(self) -> None:
        """End the processes, wait for the last inference, and write the last counts."""
        self.pictures.close()
        self.drawing.close()
        self.slow.close()
        if self.loaded and not self.loaded.batcher.close(CLOSE_TIMEOUT_S):
            self.fail(f"the last inference did not end within {CLOSE_TIMEOUT_S} s")


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("what a client began and did not wait for has failed: %s", error)


def create_app(
    settings: Settings | None = None,
    engine: Engine | None = None,
    *,
    access: Access | None = None,
    load: Callable[[], Awaitable[Engine]] | None = None,
    reload: Callable[[], Coroutine[Any, Any, None]] | None = None,
    count_workers: Callable[[], Mapping[str, int]] | None = None,
) -> FastAPI:
    """Wire the service: it loads the bundles while it already answers probes.

    It needs no supervisor: `uvicorn --factory service.app:create_app` serves it too.

    Args:
        settings: of this process; by default the environment's.
        engine: where inference happens, if that is loaded already.
        access: the keys; by default those of the settings.
        load: loads the engine; by default, from the bundles of the settings.
        reload: has all workers load the bundles anew; without it, nothing can.
        count_workers: gives the number of workers in each state, for the metrics.

    Raises:
        service.settings.SettingsError: a setting is wrong, or the API keys cannot be used.
    """
    settings = settings or Settings.from_environment()
    access = access or Access(settings)
    serve_grpc = _grpc(settings)
    context = Context(
        settings,
        max_rows=max_view_rows(settings.max_pictures),
        count_workers=count_workers,
        load=load,
        reload=reload,
    )
    context.load = load or partial(load_engine, context)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        context.pictures.start()
        loading = None if context.loaded else asyncio.ensure_future(context.load_and_use())
        async with serve_grpc(app, context):
            yield
        if loading:
            loading.cancel()
        context.close()

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
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state = context  # type: ignore[assignment]  # FastAPI's has no types
    page = partial(Route, "GET", needs_models=False, include_in_schema=False)
    pages = [
        page("/", show_page, permission="public"),
        page("/documentation", show_documentation, permission="public"),
        page("/documentation/", show_documentation, permission="public"),
        page("/docs", show_docs),
        page("/openapi.json", show_openapi),
        *mounts(),
    ]
    routes = api_routes(access, max_pictures=settings.max_pictures)
    app.router.routes[:] = [
        *routes,
        *v2_routes(max_pictures=settings.max_pictures, grpc=bool(settings.grpc_port)),
        *pages,
        *_swagger(app),
    ]
    context.openapi = complete(app, {route.operation_id or "": route.problems for route in routes})
    # FastAPI calls this instead of its own middleware and router: Middleware answers all errors.
    stack: ASGIApp = Middleware(Router(app.router, access), context)
    if settings.cors_origins:
        stack = CORSMiddleware(
            stack,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=[*_SENT, TIMEOUT_HEADER, TENSOR_HEADER],
            expose_headers=_ANSWERED,
        )
    app.middleware_stack = stack
    if engine is not None:
        context.use(engine)
    return app


def _swagger(app: FastAPI) -> list[BaseRoute]:
    """Make the routes of Swagger UI, without FastAPI's document: it serialises it each time."""
    found = [route for route in app.router.routes if getattr(route, "path", "") != app.openapi_url]
    for mount in found:
        mount.permission = "key"  # type: ignore[attr-defined]
    return found


def _grpc(settings: Settings) -> Callable[..., AbstractAsyncContextManager[None]]:
    """Make the context manager that serves gRPC; one that does nothing if no port is set.

    Raises:
        SettingsError: its packages are not installed.
    """
    if not settings.grpc_port:
        return lambda _app, _context: nullcontext()
    try:
        from service.api.v2.grpc import serve_grpc  # noqa: PLC0415  an extra
    except ImportError as error:
        raise SettingsError.lacking("CAPSNET_GRPC_PORT", "grpc") from error
    return serve_grpc


async def load_engine(
    context: Context, *, strict: bool = False, folder: Path | None = None
) -> Engine:
    """Load the bundles into this process, on a thread.

    Args:
        context: has the settings, counts batches, and fails if the engine is lost.
        strict: whether a broken bundle is an error.
        folder: where a copy of the bundles is.

    Raises:
        BundleRefused, model.runtime.DeviceError: see `load_runtimes`.
    """

    def load() -> Engine:
        settings = context.settings
        workers = max(1, settings.workers)
        return open_engine(
            load_runtimes(settings, strict=strict, workers=workers, folder=folder),
            on_batch=context.metrics.record_batch,
            on_lost=lambda error: context.fail(f"inference failed: {error}"),
        )

    return await asyncio.to_thread(load)
