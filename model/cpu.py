"""onnxruntime on the CPU."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from onnxruntime import InferenceSession, SessionOptions

from model.sessions import PlainSession, load

PROVIDER = "CPUExecutionProvider"


@dataclass(frozen=True)
class CpuDevice:
    """Plain sessions; batches run as they come."""

    threads: int = 0
    """Of one inference; 0 takes this process's CPU quota."""

    def open(self, graph: Path, *, spins: bool = True) -> PlainSession:
        """Load a graph; see `open_session`.

        Raises:
            BundleError: onnxruntime cannot load it.
        """
        return PlainSession(open_session(graph, threads=self.threads, spins=spins))


def open_session(graph: Path, *, threads: int = 0, spins: bool = True) -> InferenceSession:
    """Load a graph for the CPU.

    Args:
        graph: the file.
        threads: of one inference; 0 takes this process's CPU quota.
        spins: whether the threads of one inference wait for one another in a busy loop: sooner
            done where it takes a few milliseconds, a waste of cores where it takes longer. None
            spins between inferences, on cores that answer HTTP.

    Raises:
        BundleError: onnxruntime cannot load it.
    """
    options = SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or cpu_quota()
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spins)))
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return load(graph, options, [PROVIDER])


def cpu_quota(cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """How many CPUs this process may use at once: its container's quota, rounded up.

    Reads cgroups of both versions, as a container sees its own.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = _quota_of_version_2(cgroups) or _quota_of_version_1(cgroups) or math.inf
    return max(1, math.ceil(min(usable or 1, quota)))


def _quota_of_version_2(cgroups: Path) -> float | None:
    """`cpu.max` holds "quota period", in microseconds, or "max period"."""
    try:
        quota, period = (cgroups / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_of_version_1(cgroups: Path) -> float | None:
    """The quota is -1 where there is none."""
    try:
        quota = int((cgroups / "cpu" / "cpu.cfs_quota_us").read_text())
        period = int((cgroups / "cpu" / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None
    return quota / period if quota > 0 and period > 0 else None
