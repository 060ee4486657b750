from __future__ import annotations

import threading

import pytest

from service.lifecycle import Lifecycle, watch
from tests.service.inference.gates import PATIENCE_S, Clock


def test_an_inference_that_hangs_fails_and_then_ends_the_process() -> None:
    """`/livez` says so first, and the event loop may end the process itself before it is ended."""
    clock, lifecycle, ended = Clock(), Lifecycle(), threading.Event()
    seen: list[tuple[float, str | None]] = []

    def sleep(seconds: float) -> None:
        seen.append((seconds, lifecycle.failure))
        clock.now += seconds

    def end(failure: str | None) -> None:
        seen.append((clock.now, failure))
        ended.set()

    watch(clock, lifecycle, limit_s=1.0, end=end, sleep=sleep)
    assert ended.wait(PATIENCE_S)
    reason = "an inference takes longer than 1 s"
    assert [(0.5, None)] * 3 + [(5.0, reason), (6.5, reason)] == seen


def test_inferences_that_end_are_never_said_to_hang() -> None:
    """However many there are, and however long the last one may take."""
    lifecycle, ended = Lifecycle(), threading.Event()
    seconds, failures = iter([1.0] * 100 + [1.1]), list[str | None]()
    watch(
        lambda: next(seconds),
        lifecycle,
        limit_s=1.0,
        end=lambda _: ended.set(),
        sleep=lambda _: failures.append(lifecycle.failure),
    )
    assert ended.wait(PATIENCE_S)
    assert [None] * 100 == failures[:-1]


@pytest.mark.parametrize("later", ["another", "inference failed: gone"])
def test_the_first_failure_counts(later: str) -> None:
    """Those that follow are its consequences."""
    lifecycle = Lifecycle()
    lifecycle.lose(ValueError("gone"))
    lifecycle.fail(later)
    assert "inference failed: gone" == lifecycle.failure
