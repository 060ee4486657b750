"""Where the time of a request goes, in microseconds: one kept connection, one worker.

The stacks of the worker are sampled by CPU time, which other programs do not disturb. A sample
belongs to the innermost frame that a rule knows. The kernel's part is what the system counts.
A second load, without samples, measures the CPU time that the shares divide, and how long the
client waits.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.load.catalogue import multipart, ours
from benchmarks.load.client import generate
from benchmarks.load.servers import descendants, running
from model import SHIPPED

SAMPLER = Path(__file__).parent / "sampler"
_KERNEL, _INFERENCE, _PICTURE = "kernel", "onnxruntime", "picture"
RULES = (
    (_INFERENCE, r"onnxruntime/|model/runtime/"),
    (_PICTURE, r"service/pictures/|PIL/|model/preprocess/"),
    ("form", r"service/http/(form|uploads)\.py|python_multipart"),
    ("log", r"telemetry/logs\.py|logging/__init__"),
    ("metrics", r"telemetry/metrics\.py|prometheus_client"),
    ("JSON", r"_to_json|model_dump_json|answers\.py"),
    ("batcher", r"inference/(batcher|engine|encodings)\.py"),
    ("admission", r"inference/(job|price)\.py|service/budget\.py|http/rate\.py"),
    ("view", r"model/views/|service/(views|net)\.py"),
    (
        "route",
        r"http/(route|router|request|negotiation)\.py|pydantic|starlette/(?!middleware)",
    ),
    ("middleware", r"http/(middleware|body|sites|keys)\.py|telemetry/timings\.py"),
    ("parsing and sending HTTP", r"http/protocol\.py|uvicorn/"),
    ("event loop", r"asyncio/|uvloop|processes/"),
)
"""Parts by what names their frames."""

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def profile(
    model: Annotated[str, typer.Option(help="A bundle that ships.")] = "mnist-attention",
    seconds: Annotated[float, typer.Option(min=1, help="Of each of two loads.")] = 20,
) -> None:
    """Print the microseconds of a request in each part, as a table in Markdown."""
    variables = {"CAPSNET_WORKERS": "1", "CAPSNET_THREADS": "1", "CAPSNET_MODELS": f'["{model}"]'}
    variables["CAPSNET_DEFAULT_MODEL"] = model
    request = partial(multipart, f"/classify?model={model}", "file")
    setting = replace(ours(SHIPPED / model, variables), form=request)
    with tempfile.TemporaryDirectory() as scratch:
        sampled = {
            "PYTHONPATH": os.pathsep.join([str(SAMPLER), *sys.path]),
            "SAMPLES_OF": f"{scratch}/",
        }
        setting = replace(setting, variables={**setting.variables, **sampled})
        with running(setting) as server:
            worker = busiest(descendants(server.pid))
            os.kill(worker, signal.SIGUSR1)
            generate(server.load(1, seconds=seconds, warm_up_s=0))
            os.kill(worker, signal.SIGUSR2)
            stacks = Path(scratch, str(worker))
            while not stacks.exists():
                time.sleep(0.1)
            parts = divide(stacks.read_text())
            began = processor_s(worker)
            outcome = generate(server.load(1, seconds=seconds, warm_up_s=0))
            user_s, system_s = (
                now - before for now, before in zip(processor_s(worker), began, strict=True)
            )
    requests = outcome.statuses["200"]
    total = sum(parts.values())
    rows = {part: 1e6 * user_s / requests * count / total for part, count in parts.items()}
    rows[_KERNEL] = 1e6 * system_s / requests
    spent = sum(rows.values())
    typer.echo(f"{model}: {requests:,} requests, p50 of the client {outcome.p50_ms:.2f} ms\n")
    typer.echo("| part | microseconds | share |\n|---|---|---|")
    for part, us in sorted(rows.items(), key=lambda row: -row[1]):
        typer.echo(f"| {part} | {us:,.0f} | {us / spent:.0%} |")
    outside = spent - rows.get(_INFERENCE, 0) - rows.get(_PICTURE, 0)
    typer.echo(f"| together | {spent:,.0f} | |")
    typer.echo(f"| together, without {_INFERENCE} and {_PICTURE} | {outside:,.0f} | |")


def divide(stacks: str) -> Counter[str]:
    """Count the samples of each part, of lines with the frames of a stack and its samples."""
    counts: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        counts[_part(stack.split(";"))] += int(count)
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
