"""Builds the app, and the context that its parts share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.routing import BaseRoute

from service import VERSION
from service.api.routes import TAGS, api_routes, max_view_cost
from service.api.v2.http import v2_routes
from service.http.context import Context
from service.http.keys import Access
from service.http.middleware import Middleware, cross_origin
from service.http.openapi import complete
from service.http.pages import (
    mounts,
    show_docs,
    show_documentation,
    show_openapi,
    show_page,
)
from service.http.route import Route, Router
from service.inference.bundles import load_runtimes
from service.inference.engine import Engine, open_engine
from service.settings import Settings, SettingsError

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
        max_cost=max_view_cost(settings.max_pictures),
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
    # Instead of Starlette's and FastAPI's own middleware: Middleware answers all errors.
    middleware = Middleware(Router(app.router, access), context)
    app.middleware_stack = cross_origin(middleware, settings.cors_origins)
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
