"""Numbers that all processes of one service share, in memory without a name."""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
from typing import NamedTuple, Self

CLOSED = sys.maxsize
"""The connections of a process that accepts none."""
FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable: where the processes keep their metrics, and an engine its socket."""
_SLOTS_FROM = 8
"""Before them are the service's own numbers, and room for more."""


class State(NamedTuple):
    """The service's own numbers."""

    wanted: int = 0
    """Workers."""
    ready: int = 0
    """Workers that can answer."""
    outdated: int = 0
    """Workers that are missing because the bundles on disk are not those that are served."""
    restarted: int = 0
    """Processes that were started in place of another."""
    killed: int = 0
    """Processes that were killed because they hung."""


class Board:
    """A slot for each process, and the state of the service.

    Each number is written by one process: those of a slot by the process that has it and, after its
    end, by the supervisor, which writes the state too.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        numbers = memoryview(mmap.mmap(descriptor, 0)).cast("q")
        self.slots = (len(numbers) - _SLOTS_FROM) // 2
        self._state = numbers[:_SLOTS_FROM]
        self._connections = numbers[_SLOTS_FROM : _SLOTS_FROM + self.slots]
        self._pids = numbers[_SLOTS_FROM + self.slots :]

    @classmethod
    def create(cls, slots: int) -> Self:
        """A board of free slots."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("capsnet")
        else:  # macOS
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, 8 * (_SLOTS_FROM + 2 * slots))
        board = cls(descriptor)
        for slot in range(slots):
            board.clear(slot)
        return board

    def has_fewer(self, slot: int) -> bool:
        """Whether another process has fewer connections."""
        return min(self._connections) < self._connections[slot]

    @property
    def pids(self) -> list[int]:
        """Of all processes that have a slot."""
        return sorted(filter(None, self._pids))

    @property
    def state(self) -> State:
        """The service's own numbers."""
        return State(*self._state[: len(State._fields)])

    @state.setter
    def state(self, state: State) -> None:
        for index, number in enumerate(state):
            self._state[index] = number

    def accepts(self, slot: int) -> bool:
        """Whether a process accepts connections."""
        return self._connections[slot] != CLOSED

    def note(self, slot: int, connections: int) -> None:
        """Say how many connections this process has, or CLOSED."""
        self._connections[slot] = connections

    def take(self, slot: int, pid: int) -> None:
        """Say which process has a slot."""
        self._pids[slot] = pid

    def clear(self, slot: int) -> None:
        """Say that no process has a slot."""
        self.note(slot, CLOSED)
        self.take(slot, 0)
