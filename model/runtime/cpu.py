"""Run graphs in onnxruntime on the CPU."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Timer

import numpy as np
import onnxruntime
from onnxruntime import (
    InferenceSession,
    OrtAllocatorType,
    OrtMemoryInfo,
    OrtMemType,
    RunOptions,
    SessionOptions,
)

from model.bundle import BundleError
from model.runtime.sessions import DTYPES, Array, PlainSession, Session, create_session

PROVIDER = "CPUExecutionProvider"
QUICK_S = 0.002
"""An inference of one row that takes less on one thread is not divided among several."""
MAX_ROW_S = 60.0
"""A graph whose trial takes longer is refused: it may loop forever."""
_REMEMBERED, _TRY_EVERY = 5, 32
"""Runs of each session that are compared, and runs between two trials of the slower one."""


class CpuDevice:
    """A CPU, which runs batches of any size.

    Args:
        threads: of one inference; 0 takes this process's CPU quota.
        lone_threads: threads of one inference of the encoder for one or two images, which runs only
            when the queue is short.
    """

    def __init__(self, threads: int = 0, lone_threads: int = 0) -> None:
        self.threads = threads or cpu_quota()
        self.lone_threads = max(self.threads, lone_threads)

    def open(self, graph: Path, *, lone: bool = False) -> Session:
        """Load a graph and measure it, on one thread where that is quick.

        Raises:
            BundleError: onnxruntime cannot load it or run it.
        """
        one_thread = _measured(graph, 1)
        most = self.lone_threads if lone else self.threads
        if most == 1 or one_thread.row_s <= QUICK_S:
            return one_thread
        all_threads = _measured(graph, most)
        all_threads.core_s = one_thread.core_s
        return FasterSession([one_thread, all_threads]) if lone else all_threads


class FasterSession:
    """Sessions of one graph with different numbers of threads. The one that was faster lately runs.

    On a quiet machine that is the one with more threads. Next to another busy program it is the one
    with a single thread, because threads of one inference wait for each other.

    Args:
        sessions: at least two.
        clock: seconds.
    """

    def __init__(
        self, sessions: Sequence[Session], *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._seconds = [deque([session.row_s], _REMEMBERED) for session in sessions]
        self._runs = 0

    @property
    def provider(self) -> str:
        """The onnxruntime provider in use."""
        return self._sessions[0].provider

    @property
    def row_s(self) -> float:
        """The seconds of one row in recent runs."""
        return min(map(statistics.median, self._seconds))

    @property
    def core_s(self) -> float:
        """The seconds of a core that one row took when the graph was loaded."""
        return self._sessions[0].core_s

    def run(self, **inputs: Array) -> list[Array]:
        """Return all outputs."""
        self._runs += 1
        medians = [statistics.median(seconds) for seconds in self._seconds]
        order = sorted(range(len(medians)), key=medians.__getitem__)
        chosen = order[0 if self._runs % _TRY_EVERY else 1]
        began = self._clock()
        outputs = self._sessions[chosen].run(**inputs)
        rows = len(next(iter(inputs.values())))
        self._seconds[chosen].append((self._clock() - began) / rows)
        return outputs

    def padding(self, rows: int) -> int:
        """Return 0: batches are not padded."""
        return self._sessions[0].padding(rows)


def _measured(graph: Path, threads: int) -> PlainSession:
    session = open_session(graph, threads=threads)
    return PlainSession(session, *_seconds_of_a_row(graph, session))


def open_session(graph: Path, *, threads: int = 0) -> InferenceSession:
    """Load a graph for the CPU.

    Args:
        graph: the file.
        threads: of one inference; 0 takes this process's CPU quota.

    Raises:
        BundleError: onnxruntime cannot load it.
    """
    options = SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or cpu_quota()
    # A thread that spins takes the core from other programs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    _share_memory()
    options.add_session_config_entry("session.use_env_allocators", "1")
    return create_session(graph, options, [PROVIDER])


@cache
def _share_memory() -> None:
    """Have all sessions of this process compute in the same memory, not each in its own."""
    memory = OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)
    onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg({}))


def _seconds_of_a_row(graph: Path, session: InferenceSession) -> tuple[float, float]:
    """Measure the seconds that one row takes, undisturbed, and those of this thread's core."""
    options = RunOptions()
    overdue = Timer(MAX_ROW_S, setattr, (options, "terminate", True))
    overdue.daemon = True
    seconds, core_s = [], []
    overdue.start()
    try:
        inputs = {
            entry.name: np.zeros((1, *entry.shape[1:]), DTYPES[entry.type])
            for entry in session.get_inputs()
        }
        for _ in range(4):
            began, core_began = time.perf_counter(), time.thread_time()
            session.run(None, inputs, options)
            seconds.append(time.perf_counter() - began)
            core_s.append(time.thread_time() - core_began)
    except Exception as error:  # onnxruntime's errors have no common class
        raise BundleError(f"{graph}: onnxruntime cannot run it: {error}") from error
    finally:
        overdue.cancel()
    return min(seconds), min(core_s)


def cpu_quota(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """Return how many CPUs this process may use: its smallest quota, rounded up.

    Args:
        cgroups: where control groups of either version are mounted.
        own: names the groups of this process. A container sees its own as the root; a unit of
            systemd lies in others, each of which may have a quota.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    folders = [folder for group in _groups(own) for folder in (group, *group.parents)]
    quotas = [
        read(cgroups / folder)
        for folder in folders
        for read in (_quota_of_version_2, _quota_of_version_1)
    ]
    return max(1, math.ceil(min(usable or 1, *(quota for quota in quotas if quota), math.inf)))


def _groups(own: Path) -> list[Path]:
    """The groups that may limit this process, relative to where they are mounted."""
    groups = [Path(), Path("cpu")]
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                groups.append(Path(path.lstrip("/")))
            elif "cpu" in controllers.split(","):
                groups.append(Path("cpu", path.lstrip("/")))
    return groups


def _quota_of_version_2(folder: Path) -> float | None:
    """`cpu.max` holds "quota period", in microseconds, or "max period"."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_of_version_1(folder: Path) -> float | None:
    """The quota is -1 where there is none."""
    try:
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None
