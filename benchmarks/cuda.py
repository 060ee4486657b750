"""Settings of CUDA against each other: encoded images per second, host to host.

    python -m benchmarks.cuda --bundle model/bundles/mnist --batches 1 8 32 128

Prints a Markdown table. Needs a CUDA device, onnxruntime-gpu and numpy, and nothing else.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

from model.bundle import Bundle
from model.preprocess import Floats
from model.runtime import DeviceError, Runtime
from model.runtime.cuda import CudaOptions

SETTINGS = {
    "float32": CudaOptions(),
    "TF32": CudaOptions(tf32=True),
}
MIN_TURN_S = 0.2
"""Shorter calls are repeated until a turn lasts about this long."""

Rates = dict[tuple[str, int], float]


def main() -> None:
    """Measure and print, or say that there is no CUDA and exit with 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bundle", type=Path, default=Path("model/bundles/mnist"))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    try:
        runtimes = open_all(Bundle.open(arguments.bundle), max(arguments.batches))
    except DeviceError as error:
        sys.exit(f"benchmarks.cuda needs CUDA: {error}")
    images = draw_images(max(arguments.batches), next(iter(runtimes.values())))
    rates = measure(runtimes, images, arguments.batches, rounds=arguments.rounds)
    print_table(rates, arguments.batches, length_changes(runtimes, images))


def open_all(bundle: Bundle, max_rows: int) -> dict[str, Runtime]:
    """The bundle once for each setting, warmed up.

    Raises:
        DeviceError: there is no CUDA.
    """
    runtimes = {}
    for name, options in SETTINGS.items():
        runtime = Runtime(bundle, device="cuda", cuda=options, max_encode_rows=max_rows)
        started = time.perf_counter()
        runtime.warm_up()
        print(f"{name}: warmed up in {time.perf_counter() - started:.1f} s", file=sys.stderr)
        runtimes[name] = runtime
    return runtimes


def draw_images(count: int, runtime: Runtime) -> Floats:
    """Seeded sparse noise, (count, 1, H, W)."""
    shape = (count, *runtime.bundle.manifest.image_shape)
    rng = np.random.default_rng(0)
    return (rng.random(shape) * (rng.random(shape) < 0.2)).astype(np.float32)


def measure(
    runtimes: dict[str, Runtime], images: Floats, batches: list[int], *, rounds: int
) -> Rates:
    """Images per second by setting and batch: medians over rounds in which all take turns."""
    rates: Rates = {}
    for batch in batches:
        part = images[:batch]
        seconds: dict[str, list[float]] = {name: [] for name in runtimes}
        for _ in range(rounds):
            for name, runtime in runtimes.items():
                seconds[name].append(_seconds(runtime, part))
        for name, turns in seconds.items():
            rates[name, batch] = batch / median(turns)
    return rates


def length_changes(runtimes: dict[str, Runtime], images: Floats) -> dict[str, float]:
    """The largest difference of any length from the CPU's, by setting."""
    bundle = next(iter(runtimes.values())).bundle
    expected = Runtime(bundle, device="cpu").encode(images).presence
    return {
        name: float(np.abs(runtime.encode(images).presence - expected).max())
        for name, runtime in runtimes.items()
    }


def print_table(rates: Rates, batches: list[int], changes: dict[str, float]) -> None:
    """A row for each setting."""
    print("| setting |", *(f"batch {batch} |" for batch in batches), "largest length change |")
    print("|---|" + "---|" * (len(batches) + 1))
    for name, change in changes.items():
        cells = (f"{rates[name, batch]:,.0f} |" for batch in batches)
        print(f"| {name} |", *cells, f"{change:.1e} |")


def _seconds(runtime: Runtime, images: Floats) -> float:
    """Seconds of one call, as a mean over a turn."""
    started = time.perf_counter()
    runtime.encode(images)
    repeats = math.ceil(MIN_TURN_S / (time.perf_counter() - started))
    started = time.perf_counter()
    for _ in range(repeats):
        runtime.encode(images)
    return (time.perf_counter() - started) / repeats


if __name__ == "__main__":
    main()
