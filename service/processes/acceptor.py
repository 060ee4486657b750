"""Workers take connections from the same sockets: each as long as no other has fewer."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from service.processes.board import CLOSED, Board

log = logging.getLogger(__name__)
_LOOKS, _LOOK_S = 3, 0.001
_STARTING = 1 << 32
"""Added to the connections of a worker that cannot answer yet, so that any other has fewer."""
_STARTING_LOOK_S = 0.05
_NO_DESCRIPTOR_S = 1.0


class Acceptor:
    """Accepts one connection whenever one waits, unless another worker has fewer.

    Then it looks again a millisecond later, three times at most, and accepts all the same: the
    other may be busy or stopped. A worker that cannot answer yet accepts only if all others cannot.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        board: Board,
        slot: int,
        *,
        serve: Callable[[socket.socket], Awaitable[object]],
        can_answer: Callable[[], bool],
    ) -> None:
        self._listeners = listeners
        self._board, self._slot = board, slot
        self._serve = serve
        self._can_answer = can_answer
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    def note(self) -> None:
        """Tell the other workers how many connections this one has."""
        count = self.connections + (0 if self._can_answer() else _STARTING)
        self._board.note(self._slot, CLOSED if self._is_closed else count)

    def resume(self) -> None:
        """Accept from here on."""
        for listener in () if self._is_closed else self._listeners:
            self._loop.add_reader(listener, self._look, listener)
        self.note()

    def close(self, *, empty: bool) -> None:
        """Accept no more.

        Args:
            empty: accept what waits: the last worker that closes would reset it.
        """
        for listener in () if self._is_closed else self._listeners:
            self._loop.remove_reader(listener)
            with suppress(OSError):  # no descriptor is left
                while empty and self._accept(listener):
                    pass
            listener.close()
        self._is_closed = True
        self.note()

    def count_closed(self) -> None:
        """Count a connection that was closed."""
        self.connections -= 1
        self.note()

    def _look(self, listener: socket.socket, looks: int = 0) -> None:
        """Accept a connection, or look again later."""
        if self._is_closed:
            return
        self.note()
        can_answer = self._can_answer()
        if self._board.has_fewer(self._slot) and (not can_answer or looks < _LOOKS):
            self._loop.remove_reader(listener)
            wait_s = _LOOK_S if can_answer else _STARTING_LOOK_S
            self._loop.call_later(wait_s, self._look, listener, looks + 1)
            return
        try:
            self._accept(listener)
        except OSError as error:  # no descriptor is left
            log.warning("no connection accepted: %s", error)
            self._loop.remove_reader(listener)
            self._board.note(self._slot, CLOSED)
            self._loop.call_later(_NO_DESCRIPTOR_S, self.resume)
        else:
            if looks:
                self._loop.add_reader(listener, self._look, listener)

    def _accept(self, listener: socket.socket) -> bool:
        """Accept a connection; whether one waited."""
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            return False
        self.connections += 1
        self.note()
        task = self._loop.create_task(self._begin(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _begin(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await self._serve(connection)
        except OSError:  # its client is gone
            connection.close()
            self.count_closed()
