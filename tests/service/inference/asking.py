"""What one request asks of an engine."""

from __future__ import annotations

from service.inference.engine import Engine
from service.inference.job import Admission, Job
from service.pictures.pools import DecodePools
from service.pipeline import Pipeline


def ask(engine: Engine, job: Job | None = None) -> Pipeline:
    """What a job of its own asks an engine."""
    preparation = DecodePools(max_pixels=1, processes=2)
    return Pipeline(engine, job or Job(0.0), Admission(1000), preparation, "mnist", max_cost=1000)
