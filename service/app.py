"""The composition root: everything else takes what it needs as arguments."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse

from service import problems
from service.engine import Engine
from service.inside import routes as inside
from service.inspector import Inspector
from service.lifecycle import Lifecycle
from service.metrics import Metrics
from service.middleware import BodyLimit, Disconnect, RequestId, Telemetry
from service.routes import router
from service.settings import Settings


def create_app(
    settings: Settings,
    engine: Engine,
    *,
    lifecycle: Lifecycle | None = None,
    metrics: Metrics | None = None,
) -> FastAPI:
    """Wire the service around an engine, which it closes when it stops.

    Args:
        lifecycle: shared with the server that runs the app, if one does.
        metrics: shared with the engine, if its batches are to be counted.
    """
    metrics = metrics or Metrics()
    metrics.watch(
        waiting_rows=lambda: engine.batcher.waiting_rows,
        provider=engine.provider,
        models=",".join(sorted(engine.manifests)),
    )
    inspector = Inspector(
        engine,
        default_model=settings.default_model,
        max_pixels=settings.max_pixels,
        threads=settings.decode_threads,
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        inspector.close()

    app = FastAPIOffline(
        title="CapsNet service",
        summary="Look inside a capsule network.",
        version="0.1.0",
        redoc_url=None,
        lifespan=lifespan,
        middleware=[
            Middleware(RequestId),
            Middleware(Telemetry, metrics=metrics),
            Middleware(Disconnect),
            Middleware(BodyLimit, max_bytes=settings.max_body_bytes),
        ],
    )
    app.state.settings = settings
    app.state.inspector = inspector
    app.state.metrics = metrics
    app.state.lifecycle = lifecycle or Lifecycle()
    problems.install(app)
    app.include_router(router)
    app.include_router(inside.router)

    @app.get("/", include_in_schema=False)
    async def root() -> RedirectResponse:
        return RedirectResponse("/docs")

    return app
