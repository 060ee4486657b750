"""`GET /livez`, `GET /readyz` and `GET /metrics`."""

from __future__ import annotations

from typing import Literal

from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from service.errors import Unavailable
from service.http.request import Request
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
    """Check that the process can run its networks.

    Restart the process if it cannot.
    """
    context = request.context
    context.check()
    if context.failure:
        raise Unavailable(context.failure)
    return Liveness(status="alive")


async def readyz(request: Request) -> Readiness:
    """Check that the service takes requests."""
    context = request.context
    engine = request.engine
    if context.failure or context.draining:
        raise Unavailable(context.failure or "the service is draining", retry_after_s=1)
    models = sorted(engine.manifests)
    return Readiness(status="ready", provider=engine.provider, models=models)


async def metrics(request: Request) -> PlainTextResponse:
    """Get the metrics in Prometheus' text format."""
    context = request.context
    page = await context.slow.run(context.metrics.render)
    return PlainTextResponse(page, media_type=CONTENT_TYPE)
