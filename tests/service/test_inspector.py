from __future__ import annotations

import asyncio

import pytest

from model.runtime import Runtime
from service.batcher import Full
from service.engine import Engine
from service.inspector import Inspector
from service.preparation import Fitting, Preparation


def test_a_full_queue_refuses_before_anything_is_decoded(runtime: Runtime) -> None:
    """What is no picture would otherwise be told so."""
    engine = Engine({"mnist": runtime}, max_waiting_rows=0)
    preparation = Preparation(max_pixels=1, max_waiting=1, threads=1)
    inspector = Inspector(engine, preparation, default_model="mnist")
    try:
        with pytest.raises(Full):
            asyncio.run(inspector.read([b"no picture"], inspector.manifest(None), Fitting()))
    finally:
        inspector.close(10)
