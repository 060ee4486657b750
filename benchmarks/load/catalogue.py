"""The service, and the baselines in the settings that their own docs advise to try.

On a CPU the choice is everywhere between one copy of the model whose inference takes all cores, and
a copy with one thread for each core; then whether to form batches, and how long to wait for them.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.load.environments import interpreter
from benchmarks.load.servers import ROOT, Setting
from model.runtime.cpu import cpu_quota

OURS = "this service"
UNLOGGED = "this service without its access log"
ALONE = "onnxruntime alone"
FOLDER = ROOT / "benchmarks" / "servers"
CORES = str(cpu_quota())

ONE_COPY = {"WORKERS": "1", "THREADS": CORES, "SPIN": "0"}
"""Idle onnxruntime threads sleep: where they spin, the server's own threads lack the core."""
SPINNING = ONE_COPY | {"SPIN": "1"}
"""As onnxruntime has it by default."""
COPIES = {"WORKERS": CORES, "THREADS": "1"}
SHARED = {"WORKERS": "1", "THREADS": "1"}
"""One copy that several threads of the server call at once."""


def ours(
    bundle: Path, variables: Mapping[str, str] | None = None, *, server: str = OURS
) -> Setting:
    """The service with its default settings, which load every bundle that ships.

    It keeps no encodings: the load consists of few pictures.
    """
    return Setting(
        server,
        "defaults",
        (sys.executable, "-m", "service"),
        ROOT,
        {
            "CAPSNET_BUNDLES": str(bundle.parent),
            "CAPSNET_PORT": "{port}",
            "CAPSNET_ENCODING_CACHE_BYTES": "0",
            **(variables or {}),
        },
        partial(raw, f"/classify?model={bundle.name}"),
    )


def baselines(bundle: Path) -> dict[str, list[Setting]]:
    """All settings that are tried, by server."""
    makers = {
        "FastAPI": fastapi,
        "BentoML": bentoml,
        "LitServe": litserve,
        "Ray Serve": ray_serve,
        "Triton (Python backend)": triton,
    }
    return {
        server: [_setting(server, bundle, tried) for tried in maker()]
        for server, maker in makers.items()
    }


def plain_fastapi(bundle: Path) -> dict[str, list[Setting]]:
    """FastAPI with one worker whose inference takes all cores, and with a worker for each core.

    No thread spins.
    """
    plain = {f"thread pool, {CORES} ORT threads", f"thread pool, {CORES} workers"}
    settings = [
        _setting(f"FastAPI, {tried[0]}", bundle, tried) for tried in fastapi() if tried[0] in plain
    ]
    return {setting.server: [setting] for setting in settings}


Tried = tuple[str, tuple[str, ...], dict[str, str], Callable[[bytes], bytes], str]
"""Label, command, variables, form and pattern of a setting."""
LABEL = r'"label": ?(\d+)'


def _setting(server: str, bundle: Path, tried: Tried) -> Setting:
    label, command, variables, form, pattern = tried
    variables = {"BUNDLE": str(bundle), "PORT": "{port}", "CORES": CORES, **variables}
    return Setting(server, label, command, FOLDER, variables, form, pattern)


def fastapi() -> list[Tried]:
    """Plain endpoints under uvicorn with uvloop and httptools, without an access log."""

    def tried(label: str, app: str, variables: dict[str, str]) -> Tried:
        uvicorn = (interpreter("fastapi"), "-m", "uvicorn", f"{app}:app", "--port", "{port}")
        more = ("--no-access-log", "--log-level", "warning", "--workers", variables["WORKERS"])
        return label, (*uvicorn, *more), variables, partial(raw, "/classify"), LABEL

    return [
        tried("thread pool, 1 ORT thread", "fastapi_threadpool", SHARED),
        tried(f"thread pool, {CORES} ORT threads", "fastapi_threadpool", ONE_COPY),
        tried(f"thread pool, {CORES} workers", "fastapi_threadpool", COPIES),
        tried(f"async, {CORES} threads of 1 ORT thread", "fastapi_executor", SHARED),
        tried(f"async, 1 thread of {CORES} ORT threads", "fastapi_executor", ONE_COPY),
        tried(
            f"async, 1 thread of {CORES} ORT threads that spin",
            "fastapi_executor",
            SPINNING,
        ),
    ]


def bentoml() -> list[Tried]:
    """`bentoml serve` without its access log; a batchable endpoint takes the files of a form."""
    serve = (interpreter("bentoml"), "-m", "bentoml", "serve", "bentoml_service:Capsnet")
    command = (*serve, "--host", "127.0.0.1", "--port", "{port}")
    quiet = {"BENTOML_CONFIG_OPTIONS": "api_server.logging.access.enabled=false"}
    patient = quiet | {"DELAY_MS": "60000"}  # its default; it answers 503 where it expects more
    batched = partial(multipart, "/classify", "pictures")
    single = partial(raw, "/classify_one")
    return [
        ("adaptive batching, 1 worker", command, patient | ONE_COPY, batched, LABEL),
        (f"adaptive batching, {CORES} workers", command, patient | COPIES, batched, LABEL),
        ("1 worker", command, quiet | ONE_COPY, single, LABEL),
        ("1 worker, threads spin", command, quiet | SPINNING, single, LABEL),
        (f"{CORES} workers", command, quiet | COPIES, single, LABEL),
    ]


def litserve() -> list[Tried]:
    """With the fast queue and without the access log."""

    def tried(label: str, variables: dict[str, str]) -> Tried:
        command = (interpreter("litserve"), "litserve_server.py")
        return label, command, variables, partial(raw, "/classify"), LABEL

    return [
        tried("batches within 1 ms, 1 worker", ONE_COPY | {"DELAY_MS": "1"}),
        tried("batches within 10 ms, 1 worker", ONE_COPY | {"DELAY_MS": "10"}),
        tried(f"batches within 1 ms, {CORES} workers", COPIES | {"DELAY_MS": "1"}),
        tried("1 worker", ONE_COPY | {"MAX_BATCH": "1"}),
        tried("1 worker, threads spin", SPINNING | {"MAX_BATCH": "1"}),
        tried(f"{CORES} workers", COPIES | {"MAX_BATCH": "1"}),
    ]


def ray_serve() -> list[Tried]:
    """Without the access log."""

    def tried(label: str, variables: dict[str, str]) -> Tried:
        command = (interpreter("ray"), "ray_server.py")
        return label, command, variables, partial(raw, "/classify"), LABEL

    optimised = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}
    return [
        tried("batches at once, 1 replica", ONE_COPY),
        tried("throughput-optimised, batches at once, 1 replica", ONE_COPY | optimised),
        tried(
            "throughput-optimised, batches at once, 1 replica, threads spin", SPINNING | optimised
        ),
        tried(
            "throughput-optimised, batches within 5 ms, 1 replica",
            ONE_COPY | optimised | {"DELAY_MS": "5"},
        ),
        tried(f"throughput-optimised, batches at once, {CORES} replicas", COPIES | optimised),
    ]


def triton() -> list[Tried]:
    """Triton's HTTP front and dynamic batcher with Python models behind them."""

    def tried(label: str, variables: dict[str, str]) -> Tried:
        command = (interpreter("triton"), "triton_server.py")
        pattern = r'"name":"label"[^}]*"data":\[(\d+)'
        return label, command, variables, triton_tensor, pattern

    return [
        tried("batches at once, 1 instance", ONE_COPY),
        tried("batches at once, 1 instance, threads spin", SPINNING),
        tried("batches within 2 ms, 1 instance", ONE_COPY | {"DELAY_MS": "2"}),
        tried(f"batches at once, {CORES} instances", COPIES),
    ]


def raw(path: str, png: bytes) -> bytes:
    """The picture as the body."""
    return post(path, "Content-Type: image/png", png)


def multipart(path: str, name: str, png: bytes) -> bytes:
    """The picture as a form's file."""
    disposition = f'form-data; name="{name}"; filename="digit.png"'
    head = f"--digit\r\nContent-Disposition: {disposition}\r\nContent-Type: image/png\r\n\r\n"
    body = head.encode() + png + b"\r\n--digit--\r\n"
    return post(path, "Content-Type: multipart/form-data; boundary=digit", body)


def triton_tensor(png: bytes) -> bytes:
    """The picture as a binary BYTES tensor; the answer's tensors are wanted as JSON."""
    element = struct.pack("<I", len(png)) + png
    size = f'"parameters":{{"binary_data_size":{len(element)}}}'
    tensor = f'{{"name":"pictures","shape":[1,1],"datatype":"BYTES",{size}}}'
    head = f'{{"inputs":[{tensor}]}}'.encode()
    headers = (
        f"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: {len(head)}"
    )
    return post("/v2/models/capsnet/infer", headers, head + element)


def post(path: str, headers: str, body: bytes) -> bytes:
    """A whole request."""
    line = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"
    return f"{line}Content-Length: {len(body)}\r\n\r\n".encode() + body
