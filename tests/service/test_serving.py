from __future__ import annotations

import threading

import pytest

from model.runtime import Runtime
from service.engine import Engine
from service.inspector import Inspector
from service.preparation import Preparation
from service.problems import Unavailable
from service.serving import Serving


class Noted(Inspector):
    """A real inspector that says when it is closed."""

    def __init__(self, runtime: Runtime) -> None:
        preparation = Preparation(max_pixels=1, threads=1)
        super().__init__(Engine({"mnist": runtime}), preparation, default_model="mnist")
        self.closed = threading.Event()

    def close(self, timeout_s: float | None) -> bool:
        """Close."""
        ended = super().close(timeout_s)
        self.closed.set()
        return ended


@pytest.fixture
def inspectors(runtime: Runtime) -> list[Noted]:
    return [Noted(runtime), Noted(runtime)]


def test_before_the_first_there_is_none() -> None:
    """A service that starts has nothing to answer with, and nothing to close."""
    serving = Serving()
    with pytest.raises(Unavailable), serving.inspector():
        pass
    assert serving.close(10)


def test_a_request_keeps_its_inspector(inspectors: list[Noted]) -> None:
    """An exchange changes what later requests get, and closes the old one after its last."""
    first, second = inspectors
    serving = Serving()
    serving.exchange(first)
    with serving.inspector() as one, serving.inspector() as other:
        serving.exchange(second)
        assert one is other is first
        with serving.inspector() as later:
            assert later is second
        assert first.engine.batcher.alive
    assert first.closed.wait(10)
    assert not second.closed.is_set()
    assert serving.close(10)
    assert second.closed.is_set()


def test_an_idle_inspector_is_closed_at_once(inspectors: list[Noted]) -> None:
    """Nobody else would close it."""
    first, second = inspectors
    serving = Serving()
    serving.exchange(first)
    with serving.inspector():
        pass
    serving.exchange(second)
    assert first.closed.wait(10)
    assert serving.close(10)
