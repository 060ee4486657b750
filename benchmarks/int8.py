"""An encoder with 8-bit convolutions against the bundle's own, on the CPU: speed and errors.

Static quantisation, signed weights for each channel and unsigned activations, in ranges reduced by
a bit, which processors without VNNI need against overflow.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_static,
)
from rich.console import Console
from rich.table import Table

from benchmarks.encoder import Pair, describe, measure
from model.bundle import ENCODER, ENCODER_BATCH, Bundle
from model.cpu import PROVIDER, cpu_quota, open_session
from model.preprocess import Floats, scale
from model.runtime import BATCH_ROWS
from model.sessions import load
from training.publication.study import load_digits

CALIBRATION = 256
"""Images that the ranges of activations are taken from."""
BATCH = 32


class Calibration(CalibrationDataReader):  # type: ignore[misc]  # untyped
    """Feeds images (N, 1, H, W) in batches."""

    def __init__(self, images: Floats) -> None:
        self._batches = iter(images[n : n + BATCH] for n in range(0, len(images), BATCH))

    def get_next(self) -> dict[str, Floats] | None:
        """The next batch, None after the last."""
        batch = next(self._batches, None)
        return None if batch is None else {"images": batch}


def compare(
    bundle: Annotated[Path, typer.Argument(help="Folder of a bundle.")],
    *,
    data_dir: Annotated[Path, typer.Option(envvar="CAPSNET_DATA_DIR")] = Path("data"),
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each encoder.")] = 15,
    images: Annotated[
        int, typer.Option(min=1, help="Training images, the last, that count.")
    ] = 2000,
    threads: Annotated[int, typer.Option(min=0, help="Of one inference; 0: the CPU quota.")] = 0,
) -> None:
    """Let the encoders take turns at batch 1 and 32, then count what each gets wrong."""
    threads = threads or cpu_quota()
    digits = load_digits(Bundle.open(bundle), data_dir)
    inputs = scale(digits.images)
    table = Table("batch", "8 bits, images/s", "the bundle's, images/s", "ratio", "min - max")
    with tempfile.TemporaryDirectory() as scratch:
        quantised = quantise(bundle / ENCODER, Path(scratch), inputs[:CALIBRATION])
        for batch in (1, BATCH):
            own = bundle / (ENCODER if batch < BATCH_ROWS else ENCODER_BATCH)
            pair = Pair(
                open_session(quantised, threads=threads), open_session(own, threads=threads)
            )
            table.add_row(str(batch), *describe(measure(pair, inputs[-batch:], rounds=rounds)))
        table.title = f"{bundle.name} encoder, {threads} thread(s), {rounds} rounds"
        Console().print(table)
        last, labels = inputs[-images:], digits.labels[-images:]
        wrong = [count_wrong(session, last, labels) for session in pair]
    print(f"wrong of {len(labels)} training images: {wrong[0]} and {wrong[1]}")


def quantise(graph: Path, folder: Path, images: Floats) -> Path:
    """Write the graph as it is once loaded, then its 8-bit form; the latter's path."""
    loaded, quantised = folder / "loaded.onnx", folder / "int8.onnx"
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(loaded)
    load(graph, options, [PROVIDER])
    quantize_static(
        loaded,
        quantised,
        Calibration(images),
        quant_format=QuantFormat.QOperator,
        per_channel=True,
        reduce_range=True,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=["Conv"],
    )
    return quantised


def count_wrong(session: InferenceSession, images: Floats, labels: NDArray[np.uint8]) -> int:
    """How often the longest capsule is not the label's."""
    wrong = 0
    for start in range(0, len(images), BATCH):
        part = slice(start, start + BATCH)
        (lengths,) = session.run(["lengths"], {"images": images[part]})
        wrong += int((lengths.argmax(axis=1) != labels[part]).sum())
    return wrong


if __name__ == "__main__":
    typer.run(compare)
