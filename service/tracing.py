"""Traces by OpenTelemetry: FastAPI's own hook, switched on by a setting.

FastAPI makes a span of each request; `service.timings` adds its stages as children.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from fastapi.telemetry import TelemetryConfig

from service.problems import PROBES
from service.settings import Settings, SettingsError

_PATIENCE_S = 2
"""For the collector, when nothing else is said: the last spans are sent while the process ends."""
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def telemetry(settings: Settings) -> TelemetryConfig:
    """What FastAPI is to trace: requests but probes, or nothing.

    Metrics and logs are the service's own.

    Raises:
        SettingsError: traces are wanted, but cannot be sent.
    """
    if settings.otel:
        _check()
        os.environ.setdefault("OTEL_EXPORTER_OTLP_TIMEOUT", str(_PATIENCE_S))
    return {
        "tracing": settings.otel,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": settings.otel,
        "exclude": _is_probe,
    }


def _check() -> None:
    packages = ("opentelemetry.sdk", "opentelemetry.exporter")
    if not all(importlib.util.find_spec(package) for package in packages):
        raise SettingsError("CAPSNET_OTEL needs the extra otel: install capsnet-service[otel]")
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        raise SettingsError(f"CAPSNET_OTEL needs to know where to send traces: {_ENDPOINTS[0]}")


def _is_probe(scope: Any) -> bool:
    return scope.get("path") in PROBES
