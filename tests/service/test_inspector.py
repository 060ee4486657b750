from __future__ import annotations

import asyncio

from model.runtime import Runtime
from service.batcher import Full
from service.engine import Engine
from service.inspector import Inspector, Reading
from service.preparation import Fitting, Preparation
from service.problems import Problem, UnsupportedFormat


def test_a_full_queue_refuses_before_anything_is_decoded(runtime: Runtime) -> None:
    """What is no picture would otherwise be told so, as the one on its way there is."""
    engine = Engine({"mnist": runtime}, max_waiting_rows=1)
    preparation = Preparation(max_pixels=1, max_waiting=9, threads=1)
    inspector = Inspector(engine, preparation, default_model="mnist")
    manifest = inspector.manifest(None)

    async def read_twice() -> list[list[Reading | Problem] | BaseException]:
        reads = (inspector.read([b"no picture"], manifest, Fitting()) for _ in range(2))
        return await asyncio.gather(*reads, return_exceptions=True)

    try:
        first, second = asyncio.run(read_twice())
    finally:
        inspector.close(10)
    assert isinstance(first, list)
    assert [UnsupportedFormat] == [type(one) for one in first]
    assert isinstance(second, Full)
