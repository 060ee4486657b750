from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from model.preprocess import Prepared
from model.runtime import Runtime
from service.batcher import Full
from service.engine import Engine, visiting
from service.inspector import Encoded, Inspector
from service.preparation import Fitting, Frame, Preparation
from service.problems import Problem, UnsupportedFormat
from service.waiting import Visit, Waiting


def test_a_full_queue_refuses_before_anything_is_decoded(runtime: Runtime) -> None:
    """What is no picture would otherwise be told so, as the one on its way there is."""
    engine = Engine({"mnist": runtime}, max_waiting_rows=1)
    preparation = Preparation(max_pixels=1, threads=1)
    inspector = Inspector(engine, preparation, default_model="mnist")
    manifest = inspector.manifest(None)

    async def encode_twice() -> list[list[Encoded | Problem] | BaseException]:
        calls = (inspector.encode([b"no picture"], manifest, Fitting()) for _ in range(2))
        return await asyncio.gather(*calls, return_exceptions=True)

    try:
        first, second = asyncio.run(encode_twice())
    finally:
        inspector.close(10)
    assert isinstance(first, list)
    assert [UnsupportedFormat] == [type(one) for one in first]
    assert isinstance(second, Full)


@pytest.mark.parametrize("way", ["encode", "prepare_all"])
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
        if way == "encode":
            return len(await inspector.encode(digits[:count], manifest, fitting))
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


@pytest.fixture
def inspector(runtime: Runtime) -> Iterator[Inspector]:
    """With room for three rows."""
    preparation = Preparation(max_pixels=5_000_000, threads=1)
    engine = Engine({"mnist": runtime}, max_waiting_rows=3)
    inspector = Inspector(engine, preparation, default_model="mnist")
    yield inspector
    inspector.close(10)


def test_who_was_let_in_at_the_door_is_not_refused_behind_it(
    inspector: Inspector, digits: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its picture is decoded, others may have filled the queue."""
    batcher = inspector.engine.batcher
    manifest = inspector.manifest(None)
    real = inspector._preparation.prepare

    async def prepare(*args: Any) -> list[Prepared | Problem]:
        prepared = await real(*args)
        monkeypatch.setattr(batcher, "_max_waiting_rows", 0)  # as full as can be
        return prepared

    monkeypatch.setattr(inspector._preparation, "prepare", prepare)

    async def scenario() -> list[Encoded | Problem]:
        visiting.set(Visit())
        encoded = await inspector.encode(digits[:1], manifest, Fitting())
        visiting.set(Visit())
        with pytest.raises(Full):
            await inspector.encode(digits[:1], manifest, Fitting())
        return encoded

    assert [Encoded] == [type(one) for one in asyncio.run(scenario())]


def test_who_has_no_time_for_the_line_is_refused_at_the_door(
    inspector: Inspector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own limit; who has none is told what is wrong with its picture."""
    monkeypatch.setattr(Waiting, "seconds", 10.0)
    manifest = inspector.manifest(None)

    async def read(visit: Visit) -> list[Encoded | Problem]:
        visiting.set(visit)
        return await inspector.encode([b"no picture"], manifest, Fitting())

    with pytest.raises(Full):
        asyncio.run(read(Visit(until=time.monotonic() + 5)))
    assert [UnsupportedFormat] == [type(one) for one in asyncio.run(read(Visit()))]
