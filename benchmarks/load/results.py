"""What a run has measured so far, on disk after every measurement."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.load.servers import ROOT
from model.bundle.atomic_file import replacing
from model.runtime.cpu import cpu_quota


class Results:
    """Lists of measurements by kind, kept in a JSON file that is whole at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = {"machine": describe_machine()}
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, kind: str, **measurement: Any) -> None:
        """Keep one measurement."""
        self.values.setdefault(kind, []).append(measurement)
        with replacing(self.path) as file:
            file.write(f"{json.dumps(self.values, indent=1)}\n".encode())


def describe_machine() -> dict[str, Any]:
    """What the figures depend on, and whether the machine was at rest."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": cpu_quota(),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
