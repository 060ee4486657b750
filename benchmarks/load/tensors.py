"""Images a second over the Open Inference Protocol: requests of 32 images as bytes.

Compared with onnxruntime alone, and with Triton through PyTriton with the same body. Each server
and each of its settings is measured once a round, one after the other.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console

from benchmarks.load.alone import rate_alone
from benchmarks.load.catalogue import ALONE, CORES, FOLDER, OURS, post
from benchmarks.load.client import generate
from benchmarks.load.environments import interpreter
from benchmarks.load.results import Results
from benchmarks.load.servers import ROOT, SAMPLES, DidNotStart, Setting, running

BUNDLES = [
    ROOT / "model" / "bundles" / name for name in ("mnist-attention", "mnist", "mnist-compact")
]
IMAGES = 32
"""Of one request."""
CONNECTIONS = 4
TRITON = "Triton (PyTriton)"
WARM_UP_S = 2.0
LABEL = r'"name":"label"[^}]*"data":\[(\d+)'
"""The first image's."""


def measure_tensors(results: Results, console: Console, *, rounds: int, seconds: float) -> None:
    """Measure every bundle in turn, as often as there are rounds."""
    for number in range(rounds):
        for bundle in BUNDLES:
            for at_once in (1, int(CORES)):
                rate = rate_alone(bundle, batch=IMAGES, seconds=seconds, at_once=at_once)
                label = f"{at_once} at once"
                _note(results, console, bundle, server=ALONE, setting=label, images_per_s=rate)
            settings = [_ours(bundle), *_triton(bundle)]
            for setting in settings[:: -1 if number % 2 else 1]:
                _measure(results, console, bundle, setting, seconds)


def _measure(
    results: Results, console: Console, bundle: Path, setting: Setting, seconds: float
) -> None:
    try:
        with running(setting) as server:
            outcome = generate(server.load(CONNECTIONS, seconds=seconds, warm_up_s=WARM_UP_S))
    except (DidNotStart, SubprocessError) as error:
        console.print(f"{setting.server}, {setting.label}: {error}", style="red")
        results.add("faults", server=setting.server, setting=setting.label, why=str(error))
        return
    if outcome.statuses.keys() != {"200"} or outcome.wrong or outcome.failures:
        why = f"answers {outcome}"
        results.add("faults", server=setting.server, setting=setting.label, why=why)
    measured = {"server": setting.server, "setting": setting.label, **asdict(outcome)}
    _note(results, console, bundle, images_per_s=IMAGES * outcome.rate, **measured)


def _note(results: Results, console: Console, bundle: Path, **measured: Any) -> None:
    results.add("tensors", bundle=bundle.name, **measured)
    told = "{server}, {setting}: {images_per_s:,.0f} images/s".format(**measured)
    console.print(f"{bundle.name} {told}")


def _ours(bundle: Path) -> Setting:
    variables = {"CAPSNET_BUNDLES": str(bundle.parent), "CAPSNET_PORT": "{port}"}
    form = partial(request, f"/v2/models/{bundle.name}/infer")
    command = (sys.executable, "-m", "service")
    return Setting(OURS, "defaults", command, ROOT, variables, form, LABEL)


def _triton(bundle: Path) -> Iterator[Setting]:
    """One copy of the model with all threads, or a copy with one thread for each core."""
    command = (interpreter("triton"), "triton_tensors.py")
    form = partial(request, "/v2/models/capsnet/infer")
    common = {"BUNDLE": str(bundle), "PORT": "{port}", "CORES": CORES, "MAX_BATCH": str(IMAGES)}
    for label, variables in (
        ("1 instance", {"WORKERS": "1", "THREADS": CORES, "SPIN": "0"}),
        (f"{CORES} instances", {"WORKERS": CORES, "THREADS": "1"}),
    ):
        yield Setting(TRITON, label, command, FOLDER, common | variables, form, LABEL)


def request(path: str, png: bytes) -> bytes:
    """A picture and 31 others as one binary tensor; presence and poses as bytes, labels as JSON."""
    first = next(turn for turn, sample in enumerate(SAMPLES) if sample == png)
    pictures = [SAMPLES[(first + turn) % len(SAMPLES)] for turn in range(IMAGES)]
    pixels = [np.asarray(Image.open(io.BytesIO(one)), np.float32)[None] / 255 for one in pictures]
    images = np.stack(pixels)
    tensor = {
        "name": "images",
        "shape": images.shape,
        "datatype": "FP32",
        "parameters": {"binary_data_size": images.nbytes},
    }
    binary = {"parameters": {"binary_data": True}}
    outputs = [{"name": "presence", **binary}, {"name": "poses", **binary}, {"name": "label"}]
    head = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
    return post(path, f"Inference-Header-Content-Length: {len(head)}", head + images.tobytes())
