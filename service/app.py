"""The composition root: everything else takes what it needs as arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware import Middleware

from service import problems
from service.access import SECURITY_SCHEMES, Access, ApiKeys, read_keys
from service.browsers import SecurityHeaders, cross_origin
from service.documentation import add_docs_page, add_examples
from service.engine import Engine
from service.inside import routes as inside
from service.inside.queries import MAX_POSES_BYTES
from service.inspector import Inspector
from service.lifecycle import Lifecycle
from service.loading import Loader
from service.metrics import Metrics
from service.middleware import BodyLimit, Disconnect, Failures, Head, RequestId, Telemetry
from service.page import add_page
from service.pairs import routes as pairs
from service.preparation import Preparation
from service.remembered import RememberedLines, Shortcut
from service.routes import administration, probes, router, static_routes
from service.serving import Serving
from service.settings import Settings
from service.tracing import telemetry

CLOSE_TIMEOUT_S = 5
"""How long the last inference may take to end, once nobody waits for it any more."""


def create_app(
    settings: Settings,
    engine: Engine | None = None,
    *,
    lifecycle: Lifecycle | None = None,
    metrics: Metrics | None = None,
) -> FastAPI:
    """Wire the service.

    Args:
        settings: of the whole service.
        engine: where inference happens; without one, see `attach`.
        lifecycle: shared with the server that runs the app, if one does.
        metrics: shared with the engine, if its batches are to be counted.

    Raises:
        service.settings.SettingsError: the API keys cannot be used, or traces cannot be sent.
    """
    lifecycle, metrics = lifecycle or Lifecycle(), metrics or Metrics()
    keys = read_keys(settings)
    lines = None if settings.otel else RememberedLines()  # FastAPI names spans as it routes

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        if not app.state.serving.close(CLOSE_TIMEOUT_S):
            lifecycle.fail(f"the last inference did not end within {CLOSE_TIMEOUT_S} s")

    app = FastAPIOffline(
        title="CapsNet service",
        summary="Look inside a capsule network.",
        version="0.1.0",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        middleware=_middleware(settings, keys, metrics, lines),
        telemetry=telemetry(settings),
    )
    app.state.settings = settings
    app.state.serving = Serving()
    app.state.metrics = metrics
    app.state.lines = lines
    app.state.lifecycle = lifecycle
    app.state.loader = Loader(settings, partial(attach, app), lifecycle=lifecycle, metrics=metrics)
    problems.install(app)
    guarded = [router, inside.router, pairs.router, static_routes]
    for routes in [*guarded, *([administration] if keys else [])]:
        app.include_router(routes, dependencies=SECURITY_SCHEMES if keys else [])
    app.include_router(probes)
    add_docs_page(app)
    add_examples(app)
    add_page(app)
    if engine is not None:
        attach(app, engine)
    return app


def attach(app: FastAPI, engine: Engine) -> None:
    """Put an engine behind the routes, which answer 503 before, or in the place of another.

    The app closes it, at its end or when another has taken its place.
    """
    settings: Settings = app.state.settings
    app.state.metrics.watch(
        waiting_rows=lambda: engine.batcher.waiting_rows,
        provider=engine.provider,
        models=",".join(sorted(engine.manifests)),
    )
    inspector = Inspector(
        engine,
        Preparation(
            max_pixels=settings.max_pixels,
            threads=settings.decode_threads,
        ),
        default_model=settings.default_model,
    )
    app.state.serving.exchange(inspector)


def _middleware(
    settings: Settings, keys: ApiKeys, metrics: Metrics, lines: RememberedLines | None
) -> list[Middleware]:
    """From the outermost to the innermost."""
    return [
        Middleware(Head),
        Middleware(RequestId),
        Middleware(Telemetry, metrics=metrics),
        Middleware(SecurityHeaders),
        *cross_origin(settings.cors_origins),
        Middleware(Failures),
        *([Middleware(Access, keys=keys)] if keys else []),
        Middleware(Disconnect),
        Middleware(
            BodyLimit,
            max_bytes=settings.max_body_bytes,
            max_total_bytes=settings.max_waiting_bytes,
            of_paths={"/decode": MAX_POSES_BYTES},
        ),
        *([] if lines is None else [Middleware(Shortcut, lines=lines)]),
    ]
