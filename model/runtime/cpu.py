"""onnxruntime sessions, and how they are opened on the CPU."""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime import (
    InferenceSession,
    OrtAllocatorType,
    OrtMemoryInfo,
    OrtMemType,
    RunOptions,
    SessionOptions,
)

from model.bundle import BundleError

Array = NDArray[Any]
DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}
"""The numpy types of inputs and outputs, by onnxruntime's names."""
PROVIDER = "CPUExecutionProvider"
QUICK_S = 0.002
"""An inference of one row that takes less on one thread is not divided among several."""
MAX_ROW_S = 60.0
"""A graph whose trial takes longer is refused: it may loop forever."""


class Session:
    """A graph that is ready to run, in batches as they are: from any thread on a CPU.

    Args:
        session: of onnxruntime.
        core_s: seconds of a core that one row alone takes; 0 on another device.
    """

    def __init__(self, session: InferenceSession, core_s: float = 0.0) -> None:
        self.session = session
        self.core_s = core_s

    @property
    def provider(self) -> str:
        """The onnxruntime provider in use."""
        return str(self.session.get_providers()[0])

    def run(self, **inputs: Array) -> list[Array]:
        """Return all outputs, in the graph's order. The first axis of every array is the batch."""
        outputs: list[Array] = self.session.run(None, inputs)
        return outputs


def open_graph(graph: Path, *, threads: int = 0) -> Session:
    """Load a graph for the CPU and measure it. A quick one runs on one thread.

    Args:
        graph: the file.
        threads: of one inference; 0 takes this process's CPU quota.

    Raises:
        BundleError: onnxruntime cannot load it or run it.
    """
    session = open_session(graph, threads=1)
    row_s, core_s = _seconds_of_a_row(graph, session)
    if row_s > QUICK_S and (threads or cpu_quota()) > 1:
        session = open_session(graph, threads=threads)
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


def create_session(graph: Path, options: SessionOptions, providers: list[Any]) -> InferenceSession:
    """Open a graph on these providers, or fail: onnxruntime may not choose others by itself.

    Raises:
        BundleError: it cannot be loaded there.
    """
    try:
        return InferenceSession(graph, options, providers=providers, enable_fallback=0)
    except Exception as error:  # onnxruntime's own exceptions share no narrower class
        raise BundleError(f"{graph.parent}: {graph.name} cannot be loaded: {error}") from error


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
