from __future__ import annotations

import asyncio
import math
import pickle
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.runtime import Encoding, Runtime
from service.inference.batcher import Batcher, Results
from service.inference.client import Connection, EngineClient, Host
from service.inference.engine import Engine, Loaded, open_engine
from service.inference.job import Closed, DeadlineExceeded, Job
from tests.service.inference.asking import ask
from tests.service.inference.gates import PATIENCE_S, Clock, Gate, batching, double, start

pytestmark = pytest.mark.anyio

KEY = ("mnist", "encode")
NOTHING = Loaded({}, "CPUExecutionProvider")
BAD_ROWS = {-1.0: "poison", -2.0: "lost"}


def listen(path: Path) -> socket.socket:
    """A Unix socket; that of an engine that was lost is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def double_arrays(rows: list[Any]) -> Sequence[Any]:
    """What `double` does, with rows that can be sent."""
    values = [float(value) for (value,) in rows]
    return [(np.float32(value),) for value in double([BAD_ROWS.get(one, one) for one in values])]


def numbers(*values: float) -> list[tuple[Any]]:
    return [(np.float32(value),) for value in values]


def values(results: Results) -> list[Any]:
    return [row if isinstance(row, Exception) else float(row[0]) for row in results.rows]


async def submit(remote: EngineClient, *rows: float, job: Job | None = None) -> list[Any]:
    return values(await remote.submit(KEY, numbers(*rows), job or Job(0.0)))


async def begin(remote: EngineClient, *rows: float) -> asyncio.Task[list[Any]]:
    """Submit some rows, and send them."""
    task = asyncio.create_task(submit(remote, *rows))
    for _ in range(2):  # what is submitted in this turn is sent in the next
        await asyncio.sleep(0)
    return task


@asynccontextmanager
async def hosting(gate: Gate, path: Path, **settings: Any) -> AsyncIterator[tuple[Host, Batcher]]:
    """An engine that listens on a socket."""
    async with batching(gate, KEY, **settings) as batcher:
        host = Host(batcher, NOTHING)
        async with await host.serve(listen(path)):
            yield host, batcher


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "engine"


@pytest.fixture
def gate() -> Gate:
    return Gate(double_arrays)


@pytest.fixture
def lost() -> list[str]:
    """What clients were told to be lost."""
    return []


@pytest.fixture
async def remote(gate: Gate, path: Path, lost: list[str]) -> AsyncIterator[EngineClient]:
    async with hosting(gate, path):
        remote = await EngineClient(lambda: lost.append("engine")).connect(path)
        yield remote
        remote.close()


async def test_the_network_s_answers_are_those_of_this_process(
    runtime: Runtime, path: Path
) -> None:
    """To the last bit, and the manifests too."""
    local = open_engine({"mnist": runtime})
    batcher, loaded = local.backend, local.loaded
    images = np.random.default_rng(0).random((5, 1, 28, 28), np.float32)
    classes = np.arange(10)
    try:
        async with await Host(batcher, loaded).serve(listen(path)):
            remote = await EngineClient().connect(path)
            assert loaded == remote.loaded
            engines = (Engine(batcher, loaded), Engine(remote, remote.loaded))
            asked, manifest = [ask(engine) for engine in engines], loaded.manifests["mnist"]
            encoded = [await one.encode(manifest, images) for one in asked]
            assert 5 == len(encoded[1])
            for here, there in zip(*encoded, strict=True):
                assert isinstance(here, Encoding)
                assert isinstance(there, Encoding)
                for one, other in zip(here, there, strict=True):
                    np.testing.assert_array_equal(one, other, strict=True)
            poses = runtime.encode(images).poses[3]
            decoded = [await one.decode(manifest, poses, classes) for one in asked]
            np.testing.assert_array_equal(*decoded, strict=True)
            traces = [await one.trace(manifest, images[0]) for one in asked]
            for one, other in zip(*(trace.classes for trace in traces), strict=True):
                np.testing.assert_array_equal(one, other, strict=True)
            remote.close()
    finally:
        assert await asyncio.to_thread(batcher.close, PATIENCE_S)


async def test_each_of_many_callers_gets_its_own_rows(gate: Gate, path: Path) -> None:
    """Also where several workers share the engine, and batches."""
    gate.let(1000)
    async with hosting(gate, path, max_rows=32):
        remotes = [await EngineClient().connect(path) for _ in range(3)]
        answers = await asyncio.gather(
            *(submit(remotes[row % 3], row, row + 0.5) for row in range(300))
        )
        for remote in remotes:
            remote.close()
    assert [[2 * row, 2 * row + 1] for row in range(300)] == answers


async def test_times_of_a_call_are_told(path: Path) -> None:
    """They are those of the engine."""
    clock, gate = Clock(), Gate(double_arrays)
    async with hosting(gate, path, clock=clock):
        remote = await EngineClient().connect(path)
        call = asyncio.create_task(remote.submit(KEY, numbers(1), Job(0.0)))
        await gate.running()
        clock.now = 2.0
        gate.let()
        assert (0.0, 2.0) == (await call)[1:]
        remote.close()


async def test_rows_of_a_caller_that_left_are_not_computed(
    remote: EngineClient, gate: Gate
) -> None:
    """Its cancellation reaches the engine."""
    first = await begin(remote, 1)
    await gate.running()
    leaver, stayer = await begin(remote, 2), await begin(remote, 3)
    leaver.cancel()
    await asyncio.wait([leaver])
    last = await begin(remote, 4)  # the engine hears of it after the cancellation
    gate.let()
    await first
    gate.let(2)
    assert [[6], [8]] == [await stayer, await last]
    assert numbers(2)[0] not in [row for batch in gate.batches for row in batch]


async def test_rows_of_a_worker_that_left_are_not_computed(gate: Gate, path: Path) -> None:
    """As if all its callers had left."""
    async with hosting(gate, path) as (host, batcher):
        first = start(batcher, *numbers(1), key=KEY)
        await gate.running()
        remote = await EngineClient().connect(path)
        waiting = await begin(remote, 2)
        remote.close()
        with pytest.raises(Closed):
            await waiting
        await host.drain(PATIENCE_S)
        last = start(batcher, *numbers(3), key=KEY)
        gate.let(2)
        assert [[2], [6]] == [values(await call) for call in (first, last)]
    assert [numbers(1), numbers(3)] == gate.batches


async def test_rows_that_would_be_late_are_told(path: Path, gate: Gate) -> None:
    """Deadlines travel with the rows, and what came of them comes back."""
    gate.let(2)
    async with hosting(gate, path, clock=Clock()):
        remote = await EngineClient().connect(path)
        with pytest.raises(DeadlineExceeded, match="would pass"):
            await submit(remote, 1, job=Job(0.0, deadline=-1.0))
        assert [2] == await submit(remote, 1, job=Job(0.0, deadline=math.inf))
        remote.close()


async def test_a_job_s_place_travels_with_its_rows(remote: EngineClient, gate: Gate) -> None:
    """Whoever arrived first is computed first."""
    first = await begin(remote, 1)
    await gate.running()
    tasks = [
        asyncio.create_task(submit(remote, 4 * row, 0, 0, 0, job=Job(arrived)))
        for row, arrived in ((1, 3.0), (2, 2.0), (3, 4.0))
    ]
    await asyncio.sleep(0)
    gate.let(4)
    await asyncio.gather(first, *tasks)
    assert [1.0, 8.0, 4.0, 12.0] == [float(batch[0][0]) for batch in gate.batches]


async def test_a_bad_row_fails_alone(remote: EngineClient, gate: Gate) -> None:
    """Its error is told in words, in its place, also where no array comes back."""
    gate.let(100)
    assert ["ValueError('poison')"] == [str(one) for one in await submit(remote, -1)]
    first, error, last = await submit(remote, 1, -1, 3)
    assert (2, 6) == (first, last)
    assert "ValueError('poison')" == str(error)


async def test_a_batcher_that_is_lost_answers_all_workers(remote: EngineClient, gate: Gate) -> None:
    """Those that wait, and those that come later."""
    tasks = [await begin(remote, -2)]
    await gate.running()
    tasks += [await begin(remote, 1)]
    gate.let()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [Closed, Closed] == [type(outcome) for outcome in outcomes]
    with pytest.raises(Closed, match="is shutting down"):
        await submit(remote, 1)


ENGINE = """
import asyncio, socket, sys, threading
from service.inference.batcher import Batcher, Runner
from service.inference.engine import Loaded
from service.inference.client import Host

def hang(rows):
    print("computing", flush=True)
    threading.Event().wait()

async def main():
    host = Host(Batcher({("mnist", "encode"): Runner(hang, 4)}), Loaded({}, "none"))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    async with await host.serve(listener):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_engine_is_told(path: Path, lost: list[str]) -> None:
    """Its callers get `Closed`, in the batch or not, and so do those that come later."""
    command = [sys.executable, "-c", ENGINE, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as engine:  # noqa: ASYNC220  returns at once
        assert engine.stdout
        try:
            assert b"ready\n" == await asyncio.to_thread(engine.stdout.readline)
            remote = await EngineClient(lambda: lost.append("engine")).connect(path)
            tasks = [await begin(remote, 1), await begin(remote, 2)]
            assert b"computing\n" == await asyncio.to_thread(engine.stdout.readline)
        finally:
            engine.kill()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [Closed, Closed] == [type(outcome) for outcome in outcomes]
    with pytest.raises(Closed):
        await submit(remote, 3)
    assert ["engine"] == lost
    async with hosting(Gate(double_arrays, is_open=True), path):  # where the lost one listened
        remote = await EngineClient().connect(path)
        assert [2] == await submit(remote, 1)
        remote.close()


async def test_leaving_an_engine_is_no_loss(remote: EngineClient, lost: list[str]) -> None:
    """Whoever still waits is told all the same."""
    task = await begin(remote, 1)
    assert remote.close()
    with pytest.raises(Closed):
        await task
    assert [] == lost


async def test_an_engine_that_is_not_there_cannot_be_reached(path: Path) -> None:
    """Nor one that leaves before it says what it has loaded."""
    with pytest.raises(FileNotFoundError):
        await EngineClient().connect(path)
    async with await asyncio.start_unix_server(lambda _, writer: writer.close(), path):
        with pytest.raises(ConnectionError):
            await EngineClient().connect(path)


async def test_an_engine_drains_until_its_workers_have_left(gate: Gate, path: Path) -> None:
    """Or for as long as it is told."""
    async with hosting(gate, path) as (host, _):
        await host.drain(PATIENCE_S)
        remotes = [await EngineClient().connect(path) for _ in range(2)]
        await host.drain(0.001)
        draining = asyncio.create_task(host.drain(PATIENCE_S))
        for remote in remotes:
            await asyncio.sleep(0)
            assert not draining.done()
            remote.close()
        await draining


# Frames


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Connection, asyncio.StreamReader]]:
    """A connection, and what arrives at its other side."""
    ends = [await asyncio.open_unix_connection(sock=one) for one in socket.socketpair()]
    (reader, writer), (other, other_writer) = ends
    yield Connection(reader, writer, lambda *_: None), other
    for one in (writer, other_writer):
        one.close()
        await one.wait_closed()


async def read_frame(reader: asyncio.StreamReader) -> list[tuple[Any, ...]]:
    """The messages of one frame."""
    length = int.from_bytes(await reader.readexactly(4), "little")
    messages: list[tuple[Any, ...]] = pickle.loads(await reader.readexactly(length))  # noqa: S301
    return messages


async def test_messages_of_one_turn_go_out_together() -> None:
    """In one frame; those of the next turn are another."""
    async with connected() as (connection, reader):
        for number in range(3):
            connection.send(number, np.zeros(5))
        await asyncio.sleep(0)
        connection.send(3)
        frames = [await read_frame(reader) for _ in range(2)]
    assert [[0, 1, 2], [3]] == [[message[0] for message in frame] for frame in frames]
