"""Replicas of the service on Ray Serve: `serve run deploy.ray.serve:app replicas=2`.

Ray's proxies pass HTTP requests to replicas; each has the whole service with its own batcher.
"""
# Ray reads the annotation of `app` as a class: no `from __future__ import annotations` here.

import math
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application

from service.app import CLOSE_TIMEOUT_S, create_app
from service.settings import Settings, SettingsError
from service.telemetry import logs

NAME = "capsnet"


class Arguments(BaseModel):
    """What `serve run` takes as name=value. All else are settings, see docs/reference/settings.md.

    Each replica reads the settings in the environment of its machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = ""
    """The bundle of each replica; by default what the settings say."""
    replicas: int = Field(1, ge=1)
    max_replicas: int = Field(0, ge=0)
    """If it is more than `replicas`, Ray adds and removes replicas by their ongoing requests."""
    cpus: float = Field(1, gt=0)
    """Of a replica; Ray takes fractions below 1."""
    gpus: float = Field(0, ge=0)
    """Of a replica; with any, it starts on CUDA or not at all."""

    def settings(self) -> Settings:
        """The settings of a replica.

        Raises:
            SettingsError: one is wrong, or of no use here.
        """
        settings = Settings.from_environment()
        if settings.grpc_port:
            raise SettingsError("CAPSNET_GRPC_PORT: Ray Serve passes on HTTP alone")
        changed: dict[str, Any] = {
            "workers": 1,
            "threads": math.ceil(self.cpus),
            "device": "cuda" if self.gpus else "cpu",
            # Ray's proxies listen, not the service: CAPSNET_HOST says nothing here.
            "allowed_hosts": settings.allowed_hosts or ("*",),
        }
        if self.model:
            changed |= {"models": (self.model,), "default_model": self.model}
        return settings.model_copy(update=changed)


def app(arguments: Arguments) -> Application:
    """The application for `serve run` and `serve deploy`.

    Raises:
        SettingsError: a setting of this process is wrong.
    """
    settings = arguments.settings()
    deploy = serve.deployment(name=NAME, **options(arguments, settings))
    built: Application = deploy(serve.ingress()(Replica)).bind(arguments)
    return built


def options(arguments: Arguments, settings: Settings) -> dict[str, Any]:
    """How Ray runs replicas."""
    rows = settings.max_waiting_rows
    chosen: dict[str, Any] = {
        "ray_actor_options": {"num_cpus": arguments.cpus, "num_gpus": arguments.gpus},
        # What waits in a proxy has no deadline: the replica's own admission control decides.
        "max_ongoing_requests": rows,
        "max_queued_requests": rows,  # at each proxy, while replicas start
        "backpressure_config": {"status_code": 429, "retry_after_s": 1},
        "graceful_shutdown_timeout_s": settings.drain_timeout_s + 2 * CLOSE_TIMEOUT_S,
        "graceful_shutdown_wait_loop_s": 0.5,
        "max_constructor_retry_count": 3,
        "health_check_period_s": 5,
        "health_check_timeout_s": 10,
        "logging_config": {"enable_access_log": False},  # the service has its own
    }
    if arguments.max_replicas <= arguments.replicas:
        return {**chosen, "num_replicas": arguments.replicas}
    chosen["autoscaling_config"] = {
        "min_replicas": arguments.replicas,
        "max_replicas": arguments.max_replicas,
        "target_ongoing_requests": settings.max_batch_rows,  # docs/adr/access.md, 14
        "upscale_delay_s": 10,
        "downscale_delay_s": 120,
    }
    return chosen


class Replica:
    """One copy of the service. Ray sends only its arguments to it.

    Raises:
        RuntimeError: the bundles cannot be loaded.
    """

    async def __init__(self, arguments: Arguments) -> None:  # type: ignore[misc]  # Ray awaits it
        settings = arguments.settings()
        fields = {"replica": serve.get_replica_context().replica_tag}
        logs.configure(settings.log_format, fields=fields)
        self._app = create_app(settings)
        self._context = self._app.state
        await self._context.load_and_use()
        await self.check_health()

    def __serve_build_asgi_app__(self) -> FastAPI:
        """The app, whose lifespan Ray begins and ends."""
        return self._app

    async def check_health(self) -> None:
        """Have Ray replace this replica if it cannot answer.

        Raises:
            RuntimeError: why it cannot.
        """
        self._context.check()
        if self._context.failure:
            raise RuntimeError(self._context.failure)

    async def drain(self) -> None:
        """Have load balancers leave: `/readyz` says 503, and answers close their connections."""
        self._context.draining = True
