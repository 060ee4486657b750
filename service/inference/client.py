"""The engine in a process of its own: workers send it rows over a Unix socket.

A frame is a length of four bytes and a pickled list of messages: all that was sent within one turn
of an event loop. The socket lies in a folder of the service's own user alone.
"""

from __future__ import annotations

import asyncio
import itertools
import pickle
import socket
import struct
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

from service.inference.batcher import Batcher, Results
from service.inference.engine import Loaded, Row
from service.inference.job import Closed, DeadlineExceeded, Job

_LENGTH = struct.Struct("<I")
_LIMIT = 1 << 26
"""Bytes that a connection buffers before it stops reading."""


class Connection:
    """Sends and receives messages: any values that can be pickled."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        receive: Callable[..., None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._receive = receive
        self._messages: list[tuple[Any, ...]] = []

    def send(self, *message: Any) -> None:
        """Send a message at the end of this turn of the event loop."""
        if not self._messages:
            asyncio.get_running_loop().call_soon(self._flush)
        self._messages.append(message)

    async def read(self) -> None:
        """Receive messages until one of the sides is gone, and leave."""
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                for message in pickle.loads(await self._reader.readexactly(length)):  # noqa: S301
                    self._receive(*message)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.close()

    def close(self) -> None:
        """Send no more."""
        self._writer.close()

    def _flush(self) -> None:
        frame = pickle.dumps(self._messages, protocol=5)
        self._messages = []
        if not self._writer.is_closing():
            self._writer.write(_LENGTH.pack(len(frame)) + frame)


class EngineClient:
    """Computes rows in an engine's process; a `Backend`.

    Args:
        on_lost: called when the engine is gone, unless `close` was called; callers get `Closed`.
    """

    loaded: Loaded
    """What the engine computes with, from `connect` on."""

    def __init__(self, on_lost: Callable[[], object] = lambda: None) -> None:
        self._on_lost = on_lost
        self._lost = self._closed = False
        self._ids = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Results]] = {}
        self._hello: asyncio.Future[Loaded] = asyncio.get_running_loop().create_future()

    async def connect(self, path: Path) -> Self:
        """Connect to the engine that listens on a Unix socket.

        Raises:
            OSError: none does.
        """
        reader, writer = await asyncio.open_unix_connection(str(path), limit=_LIMIT)
        self._connection = Connection(reader, writer, self._receive)
        self._reading = asyncio.create_task(self._read())
        self.loaded = await self._hello
        return self

    def __repr__(self) -> str:
        return f"EngineClient({'lost' if self._lost else 'connected'}, {len(self._calls)} calls)"

    @property
    def running_s(self) -> float:
        """Zero: the engine's own process watches its batches."""
        return 0.0

    async def submit(self, key: Hashable, rows: Sequence[Row], job: Job) -> Results:
        """Wait for the results of some rows, in order; see `Batcher.submit`."""
        if self._lost:
            raise Closed("the inference engine is restarting")
        number = next(self._ids)
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        self._connection.send(number, key, rows, job.arrived, job.deadline)
        try:
            return await future
        finally:
            if self._calls.pop(number, None) and future.cancelled() and not self._lost:
                self._connection.send(number)

    def close(self, timeout_s: float | None = None) -> bool:
        """Leave the engine; it goes on for others."""
        del timeout_s
        self._closed = True
        self._connection.close()
        return True

    async def _read(self) -> None:
        try:
            await self._connection.read()
        finally:
            self._lose()

    def _lose(self) -> None:
        self._lost = True
        if not self._hello.done():
            self._hello.set_exception(ConnectionError("the inference engine was lost"))
        for future in self._calls.values():
            if not future.done():
                future.set_exception(Closed("the inference engine was lost"))
        if not self._closed:
            self._on_lost()

    def _receive(self, number: int | None, outcome: Any) -> None:
        future: asyncio.Future[Any] | None = self._calls.get(number) if number else self._hello
        if future is None or future.done():
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class Host:
    """The engine's side: gives rows of all connections to one batcher."""

    def __init__(self, batcher: Batcher, loaded: Loaded) -> None:
        self._batcher = batcher
        self._loaded = loaded
        self._connections = 0
        self._alone = asyncio.Event()
        self._alone.set()

    async def drain(self, timeout_s: float) -> None:
        """Wait until all workers have left, or until the timeout."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._alone.wait(), timeout_s)

    async def serve(self, listener: socket.socket) -> asyncio.Server:
        """Accept workers from a Unix socket."""
        return await asyncio.start_unix_server(self._accept, sock=listener, limit=_LIMIT)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls: dict[int, asyncio.Future[Results]] = {}

        def receive(number: int, key: Hashable = None, *call: Any) -> None:
            if key is None:  # its caller has left
                if cancelled := calls.pop(number, None):
                    cancelled.cancel()
                return
            rows, arrived, deadline = call
            try:
                future = self._batcher.start(key, rows, Job(arrived, deadline))
            except Closed as error:
                connection.send(number, error)
            else:
                calls[number] = future
                future.add_done_callback(partial(answer, number))

        def answer(number: int, future: asyncio.Future[Results]) -> None:
            if calls.pop(number, None):  # nobody has cancelled it
                connection.send(number, _outcome(future))

        connection = Connection(reader, writer, receive)
        connection.send(None, self._loaded)
        self._connections += 1
        self._alone.clear()
        try:
            await connection.read()
        finally:
            for number in list(calls):
                calls.pop(number).cancel()
            self._connections -= 1
            if not self._connections:
                self._alone.set()


def _outcome(call: asyncio.Future[Results]) -> Results | Exception:
    """What became of a call; a row's error in words, because not every exception can be pickled."""
    try:
        results = call.result()
    except (DeadlineExceeded, Closed) as error:
        return error
    rows = [RuntimeError(repr(one)) if isinstance(one, Exception) else one for one in results.rows]
    return results._replace(rows=rows)
