from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from service.pool import FRAME, Crashed, Pool

LIMIT_S = 60
"""For what takes a second, on a machine that is busy."""
AMPLE_S = 30.0
"""CPU time."""


@contextlib.asynccontextmanager
async def opened(processes: int = 1) -> AsyncIterator[Pool]:
    """A pool whose processes may take 200 MB."""
    pool = Pool("json", processes=processes, limit=10, memory_bytes=200_000_000)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield pool
    finally:
        pool.close()


def answer_raw(content: bytes) -> None:
    """Write bytes to the pool in place of an answer, and end."""
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, content)
    os._exit(0)


def state(pid: int) -> str:
    """The state of a process, as proc(5) has it; Z where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def runs(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    return state(pid) != "Z"


async def until_gone(*pids: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while any(map(runs, pids)):  # noqa: ASYNC110  other processes set no event
            await asyncio.sleep(0.01)


def scenario(
    test: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """A test that runs in an event loop of its own."""

    def run(*args: Any) -> None:
        asyncio.run(test(*args))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@scenario
async def test_a_process_is_killed_at_the_deadline() -> None:
    """Whatever it does, and another takes its place at once."""
    async with opened() as pool:
        stuck, _ = await pool.run(AMPLE_S, os.getpid)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await pool.run(AMPLE_S, time.sleep, 3600)
        assert (stuck, b"") != await pool.run(AMPLE_S, os.getpid)
        await until_gone(stuck)


@pytest.mark.parametrize("end", [(os.abort,), (os._exit, 0)], ids=["abort", "exit"])
def test_a_crash_is_nobody_else_s(end: Any) -> None:
    """Not the neighbour's, whose task runs meanwhile, nor the next task's."""

    async def ask() -> None:
        async with opened(processes=2) as pool:
            neighbour = asyncio.create_task(pool.run(AMPLE_S, eval, "__import__('time').sleep(.5)"))
            await asyncio.sleep(0)
            with pytest.raises(Crashed):
                await pool.run(AMPLE_S, *end)
            assert (None, b"") == await neighbour
            assert (1, b"") == await pool.run(AMPLE_S, int, "1")

    asyncio.run(ask())


def count_sockets() -> int:
    """How many sockets this process has."""
    return sum(path.is_socket() for path in Path("/proc/self/fd").iterdir())


@scenario
async def test_a_process_has_no_connection_of_another() -> None:
    """One in bad hands cannot answer in the name of its neighbour."""
    async with opened(processes=2) as pool:
        neighbour = asyncio.create_task(pool.run(AMPLE_S, time.sleep, 3600))
        await asyncio.sleep(0)
        assert (1, b"") == await pool.run(AMPLE_S, count_sockets)
        neighbour.cancel()


def test_processes_inherit_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither keys nor anything else that is the service's alone; but the path to its modules."""
    monkeypatch.setenv("CAPSNET_API_KEYS", '["a-key-that-must-not-leak"]')
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    inherited = asyncio.run(evaluate("open('/proc/self/environ').read()", "json"))
    assert "must-not-leak" not in inherited
    assert "PYTHONPATH=" in inherited


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(print),
        FRAME.pack(1 << 40, 0, 0),
        FRAME.pack(2, 1 << 40, 0) + b"{}",
        FRAME.pack(2, 0, 0) + b"[]",
        FRAME.pack(60_000, 0, 0) + b"[" * 60_000,
    ],
    ids=["pickle", "much JSON", "many bytes", "no object", "deep"],
)
def test_the_answer_of_a_process_in_bad_hands_is_only_read(content: bytes) -> None:
    """It is neither unpickled nor trusted for its size; the next task has another process."""

    async def ask() -> None:
        async with opened() as pool:
            with pytest.raises(Crashed):
                await pool.run(AMPLE_S, answer_raw, content)
            assert (1, b"") == await pool.run(AMPLE_S, int, "1")

    asyncio.run(ask())


OWNER = """
import asyncio, os, time
from service.pool import Pool

async def main():
    pool = Pool("json", processes=2, limit=10, memory_bytes=10**8)
    stuck, _ = await pool.run(30, os.getpid)
    running = asyncio.create_task(pool.run(30, time.sleep, 3600))
    await asyncio.sleep(0.1)
    print(pool.pid, stuck, (await pool.run(30, os.getpid))[0], flush=True)
    await running

asyncio.run(main())
"""


def test_no_process_outlives_its_owner(pytestconfig: pytest.Config) -> None:
    """Neither the fork server, nor a process that is stuck, nor one that is idle."""
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, cwd=pytestconfig.rootpath, stdout=subprocess.PIPE) as owner:
        assert owner.stdout
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert all(map(runs, pids))
        owner.kill()
    assert 3 == len(set(pids))
    asyncio.run(until_gone(*pids))


async def evaluate(expression: str, module: str) -> Any:
    """What an expression is worth in a process of a pool that has imported a module."""
    pool = Pool(module, processes=1, limit=1, memory_bytes=10**8)
    try:
        return (await pool.run(AMPLE_S, eval, expression))[0]
    finally:
        pool.close()


@scenario
async def test_a_process_that_is_ended_does_no_other_task() -> None:
    """So no task finds memory that another has left."""
    async with opened() as pool:
        first, _ = await pool.run(AMPLE_S, os.getpid)
        assert (first, b"") == await pool.run(AMPLE_S, os.getpid)
        pool.end_idle()
        assert (first, b"") != await pool.run(AMPLE_S, os.getpid)
        await until_gone(first)
