"""`GET /livez`, `GET /readyz` and `GET /metrics`."""

from __future__ import annotations

from typing import Literal

from fastapi import Request
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from service.errors import Unavailable
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
    if failure := request.app.state.lifecycle.failure:
        raise Unavailable(failure)
    return Liveness(status="alive")


async def readyz(request: Request) -> Readiness:
    """Check that the service takes requests."""
    lifecycle = request.app.state.lifecycle
    with request.app.state.bundles.engine() as engine:
        if lifecycle.failure or lifecycle.draining:
            raise Unavailable(lifecycle.failure or "the service is draining", retry_after_s=1)
        models = sorted(engine.manifests)
        return Readiness(status="ready", provider=engine.provider, models=models)


async def metrics(request: Request) -> PlainTextResponse:
    """Get the metrics in Prometheus' text format."""
    return PlainTextResponse(request.app.state.metrics.render(), media_type=CONTENT_TYPE)
