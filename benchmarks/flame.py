"""Where the CPU time of a request goes, in microseconds: one kept connection, one worker.

py-spy samples the stacks of the worker. A sample belongs to the innermost frame that a rule knows.
The kernel's part is what the system counts.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.load.catalogue import multipart, ours
from benchmarks.load.client import generate
from benchmarks.load.servers import descendants, running
from model import SHIPPED

RULES = (
    ("onnxruntime", r"onnxruntime/|model/runtime/"),
    ("picture", r"service/pictures/|PIL/|model/preprocess/"),
    ("form", r"service/http/(form|uploads)\.py|python_multipart"),
    ("log", r"telemetry/logs\.py|logging/__init__"),
    ("metrics", r"telemetry/metrics\.py|prometheus_client"),
    ("JSON", r"_to_json|model_dump_json|answers\.py"),
    ("batcher", r"inference/(batcher|engine|encodings)\.py"),
    ("admission", r"inference/(job|price)\.py|service/(budget|pipeline)\.py|http/rate\.py"),
    ("view", r"model/views/|service/(views|net)\.py"),
    ("route", r"http/route\.py|pydantic|starlette/(routing|requests|responses|datastructures)"),
    ("middleware", r"http/(middleware|body|sites|keys)\.py|telemetry/timings\.py"),
    ("parsing and sending HTTP", r"http/protocol\.py|uvicorn/"),
    ("event loop", r"asyncio/|uvloop|processes/"),
)
"""Parts by what names their frames."""
_KERNEL = "kernel"

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def profile(
    model: Annotated[str, typer.Option(help="A bundle that ships.")] = "mnist-attention",
    seconds: Annotated[float, typer.Option(min=1, help="Of sampling.")] = 20,
    py_spy: Annotated[str, typer.Option("--py-spy", help="The command.")] = "py-spy",
) -> None:
    """Print the microseconds of a request in each part."""
    variables = {"CAPSNET_WORKERS": "1", "CAPSNET_THREADS": "1", "CAPSNET_MODELS": f'["{model}"]'}
    variables["CAPSNET_DEFAULT_MODEL"] = model
    request = partial(multipart, f"/classify?model={model}", "file")
    setting = replace(ours(SHIPPED / model, variables), form=request)
    with running(setting) as server, tempfile.TemporaryDirectory() as scratch:
        worker = busiest(descendants(server.pid))
        stacks = Path(scratch, "stacks")
        arguments = ["record", "--pid", str(worker), "--format", "raw", "--output", str(stacks)]
        arguments += ["--rate", "200", "--nonblocking", "--threads", "--duration"]
        began = processor_s(worker)
        with subprocess.Popen([py_spy, *arguments, f"{seconds:.0f}"]) as sampling:
            outcome = generate(server.load(1, seconds=seconds, warm_up_s=0))
            user_s, system_s = (
                now - before for now, before in zip(processor_s(worker), began, strict=True)
            )
            sampling.wait()
        requests = outcome.statuses["200"]
        parts = divide(stacks.read_text())
    table = Table("part", "microseconds of a request", title=f"{model}, {requests:,} requests")
    total = sum(parts.values())
    rows = {part: 1e6 * user_s / requests * count / total for part, count in parts.items()}
    rows[_KERNEL] = 1e6 * system_s / requests
    for part, spent in sorted(rows.items(), key=lambda row: -row[1]):
        table.add_row(part, f"{spent:,.0f}")
    table.add_row("together", f"{sum(rows.values()):,.0f}")
    Console().print(table)


def divide(stacks: str) -> Counter[str]:
    """Count the samples of each part, of stacks in py-spy's raw format."""
    counts: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if "MainThread" in frames[0] or "inference" in frames[0]:
            counts[_part(frames[1:])] += int(count)
    return counts


def _part(frames: list[str]) -> str:
    for frame in reversed(frames):
        for part, pattern in RULES:
            if re.search(pattern, frame):
                return part
    return "other"


def busiest(pids: list[int]) -> int:
    """The process that has used most CPU time: the worker."""
    return max(pids, key=lambda pid: sum(processor_s(pid)))


def processor_s(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, the user's and the system's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / ticks, int(fields[12]) / ticks


if __name__ == "__main__":
    app()
