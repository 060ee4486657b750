"""What the supervisor takes, and what one more worker does."""

from __future__ import annotations

from pathlib import Path

from benchmarks.load.servers import Running, ask, descendants

WORKER = b"--multiprocessing-fork"
"""On the command line of a worker."""


def proportional_mib(pid: int) -> float:
    """Memory of a process, of what it shares its part, in MiB."""
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        if line.startswith("Pss:")
    ]
    return int(line.split()[1]) / 1024


def measure_memory(server: Running) -> dict[str, float]:
    """MiB of the supervisor, and of it with all its processes, once each has served."""
    for request in 4 * server.requests:
        ask(server.port, request)
    processes = [server.pid, *descendants(server.pid)]
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in processes]
    return {
        "workers": sum(WORKER in line for line in lines),
        "supervisor_mib": proportional_mib(server.pid),
        "all_mib": sum(map(proportional_mib, processes)),
    }
