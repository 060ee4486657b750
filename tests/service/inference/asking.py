"""What one request asks of an engine."""

from __future__ import annotations

from service.inference.engine import Engine
from service.inference.job import Admission, Job
from service.net import ServedNet
from service.slow import SlowThread


def ask(engine: Engine, job: Job | None = None, model: str = "mnist") -> ServedNet:
    """A network of an engine for a job of its own."""
    manifest = engine.manifests[model]
    return ServedNet(manifest, engine, job or Job(0.0), Admission(1000), SlowThread())
