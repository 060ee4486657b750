"""Run graphs in onnxruntime on the CPU."""

from __future__ import annotations

import math
import os
import time
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
from model.runtime.sessions import DTYPES, Session, create_session

PROVIDER = "CPUExecutionProvider"
QUICK_S = 0.002
"""An inference of one row that takes less on one thread is not divided among several."""
MAX_ROW_S = 60.0
"""A graph whose trial takes longer is refused: it may loop forever."""


class CpuDevice:
    """A CPU, which runs batches of any size.

    Args:
        threads: of one inference; 0 takes this process's CPU quota.
    """

    def __init__(self, threads: int = 0) -> None:
        self.threads = threads or cpu_quota()

    def open(self, graph: Path, *, max_rows: int | None = None) -> Session:  # noqa: ARG002
        """Load a graph and measure it. A quick one runs on one thread; batches have any size.

        Raises:
            BundleError: onnxruntime cannot load it or run it.
        """
        one_thread = open_session(graph, threads=1)
        row_s, core_s = _seconds_of_a_row(graph, one_thread)
        quick = self.threads == 1 or row_s <= QUICK_S
        session = one_thread if quick else open_session(graph, threads=self.threads)
        return Session(session, core_s)


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
        cgroups: where control groups (version 2) are mounted.
        own: names the group of this process. A container sees its own as the root; a unit of
            systemd lies in others, each of which may have a quota.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    group = Path()
    with suppress(OSError):
        group = Path(own.read_text().rpartition("0::")[2].strip().lstrip("/"))
    quotas = [_quota(cgroups / folder) for folder in {Path(), group, *group.parents}]
    return max(1, math.ceil(min(usable or 1, *quotas)))


def _quota(folder: Path) -> float:
    """`cpu.max` holds "quota period", in microseconds, or "max period"."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
