"""Traces by OpenTelemetry, through FastAPI's hook, where a setting asks for them.

FastAPI makes a span of each request; `service.telemetry.timings` adds its stages as children.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Collection

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace
from starlette.types import Scope

from service.settings import Settings, SettingsError
from service.telemetry.timings import current_span

_DEFAULTS = {"OTEL_SERVICE_NAME": "capsnet", "OTEL_EXPORTER_OTLP_TIMEOUT": "2"}
"""Defaults of OpenTelemetry's variables.

The collector's timeout is short, in seconds, because the last spans are sent while the process
ends.
"""
_HIDDEN = "REDACTED"
"""OpenTelemetry's conventional replacement of secrets."""
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def hide_target(scope: Scope) -> None:
    """Leave only the route's template in the span of a request: the rest may hold a key."""
    span = trace.get_current_span()
    span.set_attribute("url.path", _HIDDEN)
    if scope["query_string"]:
        span.set_attribute("url.query", _HIDDEN)


def name_route(method: str, path: str) -> None:
    """Name the span of a request by its route."""
    if span := current_span():
        span.set_attribute("http.route", path)
        span.update_name(f"{method} {path}")


def telemetry(settings: Settings, probes: Collection[str] = ()) -> TelemetryConfig:
    """Configure FastAPI's traces of all requests but probes; nothing if traces are off.

    Metrics and logs are the service's own.

    Raises:
        SettingsError: traces are wanted, but cannot be sent.
    """
    if settings.otel:
        if not all(map(importlib.util.find_spec, ("opentelemetry.sdk", "opentelemetry.exporter"))):
            raise SettingsError.lacking("CAPSNET_OTEL", "otel")
        if not any(os.environ.get(name) for name in _ENDPOINTS):
            raise SettingsError(f"CAPSNET_OTEL needs to know where to send traces: {_ENDPOINTS[0]}")
        for name, value in list(os.environ.items()):
            if name.startswith("OTEL_") and not value:  # not taken for unset by its packages
                del os.environ[name]
        for name, value in _DEFAULTS.items():
            os.environ.setdefault(name, value)
    return {
        "tracing": settings.otel,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": settings.otel,
        "exclude": lambda scope: scope.get("path") in probes,
    }
