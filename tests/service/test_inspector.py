from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from model.runtime import Runtime
from service.batcher import Full
from service.engine import Engine
from service.inspector import Inspector, Reading
from service.preparation import Fitting, Frame, Preparation
from service.problems import Problem, UnsupportedFormat


def test_a_full_queue_refuses_before_anything_is_decoded(runtime: Runtime) -> None:
    """What is no picture would otherwise be told so, as the one on its way there is."""
    engine = Engine({"mnist": runtime}, max_waiting_rows=1)
    preparation = Preparation(max_pixels=1, threads=1)
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


@pytest.mark.parametrize("way", ["read", "prepare_all"])
def test_pictures_that_are_being_prepared_count(
    way: str, runtime: Runtime, digits: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait or are at work take room in the queue; afterwards there is room again."""
    inspector = Inspector(
        Engine({"mnist": runtime}, max_waiting_rows=3),
        preparation := Preparation(max_pixels=5_000_000, threads=1),
        default_model="mnist",
    )
    gate = threading.Event()
    real = preparation._work

    def work(*args: Any) -> Any:
        assert gate.wait(30)
        return real(*args)

    monkeypatch.setattr(preparation, "_work", work)
    manifest, fitting = inspector.manifest(None), Fitting("digit")

    async def ask(count: int) -> int:
        if way == "read":
            return len(await inspector.read(digits[:count], manifest, fitting))
        return len(await inspector.prepare_all(digits[:count], Frame.of(manifest), fitting))

    async def scenario() -> int:
        first = asyncio.create_task(ask(3))
        await asyncio.sleep(0)
        with pytest.raises(Full) as refusal:
            await ask(2)
        assert 0 < refusal.value.retry_after_s
        gate.set()
        assert 3 == await first
        return await ask(4)

    try:
        assert 4 == asyncio.run(scenario())
    finally:
        inspector.close(10)
