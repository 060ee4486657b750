"""`GET /livez`, `GET /readyz` and `GET /metrics`."""

from __future__ import annotations

from typing import Literal

from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from service.errors import Unavailable
from service.http.route import Request
from service.telemetry.metrics import CONTENT_TYPE


class Liveness(BaseModel):
    """The process is up."""

    status: Literal["alive"]


class Readiness(BaseModel):
    """The service takes requests."""

    status: Literal["ready"]
    provider: str
    models: list[str]


async def livez(request: Request) -> Liveness:
    """Check that the process can infer; if not, restart it."""
    health = request.context.health
    health.check()
    if health.failure:
        raise Unavailable(health.failure)
    return Liveness(status="alive")


async def readyz(request: Request) -> Readiness:
    """Check that the service takes requests."""
    health = request.context.health
    engine = health.engine
    if health.failure or health.draining:
        raise Unavailable(health.failure or "the service is draining", retry_after_s=1)
    models = sorted(engine.manifests)
    return Readiness(status="ready", provider=engine.provider, models=models)


async def metrics(request: Request) -> PlainTextResponse:
    """Get the metrics in Prometheus' text format."""
    state = request.context
    page = await (state.gather_metrics() if state.gather_metrics else state.metrics.page())
    return PlainTextResponse(page, media_type=CONTENT_TYPE)
