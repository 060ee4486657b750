from __future__ import annotations

import os
import sys
import threading

import pytest

from service.workers import Workers


def test_the_first_is_prepared_before_any_work() -> None:
    """What must happen on the thread that works has happened when the constructor returns."""
    done: list[tuple[str, int]] = []

    def note(what: str) -> int:
        done.append((what, threading.get_ident()))
        return 1

    workers = Workers(lambda: note("work"), prepare=lambda: note("prepare"))  # type: ignore[arg-type]
    assert "prepare" == done[0][0]
    assert workers.join(10)
    assert ["prepare", "work"] == [what for what, _ in done]
    assert 1 == len({thread for _, thread in done} - {threading.get_ident()})


def test_there_are_as_many_as_prepare_says() -> None:
    """What it found out may call for more than one."""
    threads: set[int] = set()
    together = threading.Barrier(3)

    def work() -> None:
        threads.add(threading.get_ident())
        together.wait(10)

    workers = Workers(work, prepare=lambda: 3)
    assert workers.join(20)
    assert 3 == len(threads)


def test_what_prepare_raises_is_raised_by_the_constructor() -> None:
    """And nobody works."""
    worked = threading.Event()

    def fail() -> int:
        raise OSError("the device is missing")

    with pytest.raises(OSError, match="missing"):
        Workers(worked.set, prepare=fail)
    assert not worked.is_set()


def test_joining_takes_no_longer_than_it_is_told() -> None:
    """While one of them works they are there; then they have ended."""
    end = threading.Event()
    workers = Workers(lambda: end.wait(10), prepare=lambda: 2)
    assert workers.alive
    assert not workers.join(0.01)
    end.set()
    assert workers.join(10)
    assert not workers.alive


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no niceness")
def test_work_gives_way_to_the_event_loop() -> None:
    """On a busy CPU the thread that made the workers runs before them."""
    niceness: list[int] = []
    workers = Workers(
        lambda: niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id())),
        prepare=lambda: 2,
    )
    assert workers.join(10)
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert [max(5, own)] * 2 == niceness


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no niceness")
def test_who_is_nicer_already_stays_so() -> None:
    """An ordinary user may not go back, and nobody should."""
    niceness: list[int] = []
    own = max(12, os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    def note() -> None:
        niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    def start() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), own)
        Workers(note, prepare=lambda: 2).join(10)

    nice = threading.Thread(target=start)
    nice.start()
    nice.join(10)
    assert [own, own] == niceness
