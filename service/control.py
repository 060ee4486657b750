"""Messages between the supervisor and a worker, over a pair of Unix sockets."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Message = dict[str, Any]
_BYTES, _DESCRIPTORS = 65_536, 64
"""Read at once."""


class Control:
    """One end: JSON lines, and descriptors of connections that come with some of them.

    Args:
        end: of the pair; closed with this.
        receive: called on the event loop with each message, and with the descriptor that came with
            it if it says `connection`.
        lost: called when the other end is gone.
    """

    def __init__(
        self,
        end: socket.socket,
        receive: Callable[[Message, int | None], None],
        lost: Callable[[], None],
    ) -> None:
        self._end = end
        self._receive = receive
        self._lost = lost
        self._line = b""
        self._descriptors: list[int] = []
        end.setblocking(False)
        asyncio.get_running_loop().add_reader(end, self._read)

    def send(self, message: Message, descriptor: int | None = None) -> bool:
        """Send a message, with an open descriptor if there is one; whether it could be sent."""
        line = json.dumps(message).encode() + b"\n"
        with suppress(OSError):  # the other end is gone or reads nothing
            sent = socket.send_fds(self._end, [line], [] if descriptor is None else [descriptor])
            return sent == len(line)
        return False

    def close(self) -> None:
        """Send and receive no more."""
        if self._end.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._end)
            self._end.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []

    def _read(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._end, _BYTES, _DESCRIPTORS)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        self._descriptors += descriptors
        if not data:
            self.close()
            self._lost()
            return
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            descriptor = self._descriptors.pop(0) if "connection" in message else None
            self._receive(message, descriptor)
