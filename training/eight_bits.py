"""An encoder whose convolutions compute in 8 bits, made by onnxruntime's own quantisation.

The graph has scales alone: its weights are those of the bundle in 16 bits, which are rounded when
the graph is loaded. So it adds some kilobytes to a bundle.
"""

from __future__ import annotations

import io
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)

from model.bundle import WEIGHTS, Bundle
from model.bundle.manifest import EIGHT_BITS
from model.preprocess import Floats, scale
from model.runtime.cpu import open_session
from training.answers import BATCH, Labelled, answer, is_wrong
from training.graphs import ExportError

CALIBRATION_IMAGES = 256
"""The training images on which the ranges of activations are found."""
PERCENTILE = 99.99
"""The percentage of activations that the range holds; the few beyond it are clipped. On the last
training digits, presences move half as much as with the full range."""
TOLERANCE = 0.02
"""The largest difference in presence of a graph with integer products from the same rounding with
float32 products. Sums between two steps may be rounded to either: by that, presences of `cifar10`
differ by 0.002. Where a processor's sums of products overflow, they differ by 0.5 and more."""
MAX_LOST = 0.001
"""The largest rise in the share of wrong answers, 0.1 percentage points; others have no 8 bits."""
_STORED = ".stored"
"""The end of the name of a weight in the file of weights."""


@dataclass
class EightBitGraph:
    """A graph that `update_manifest` writes."""

    graph: onnx.ModelProto

    def save(self, file: BinaryIO) -> None:
        """Write the graph. Its weights are in the file of weights next to it."""
        file.write(self.graph.SerializeToString())


def quantise(bundle: Bundle, images: NDArray[np.uint8]) -> EightBitGraph | None:
    """Make an encoder whose convolutions compute in 8 bits, from the bundle's plain encoder.

    Weights have a scale for each channel and 7 bits, so that the sums of two products fit in the
    16 bits of processors without VNNI. Activations are unsigned, with 8 bits. The output of the
    last convolution has a range for each channel. The first convolution, which sees the image,
    stays in float32.

    Args:
        bundle: whose encoder has its weights in the file of weights.
        images: training images (N, C, H, W) of all classes, for calibration.

    Returns:
        None where there is no second convolution.
    """
    path = bundle.graph("encoder")
    plain = _with_weights(path)
    convolutions = [node.name for node in plain.graph.node if node.op_type == "Conv"]
    if len(convolutions) < 2:
        return None
    seen = scale(images)
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(scratch, "encoder.onnx")
        with _quietly():
            quantize_static(
                plain,
                written,
                _Images(seen),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=["Conv"],
                per_channel=True,
                reduce_range=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                nodes_to_exclude=convolutions[:1],
                calibrate_method=CalibrationMethod.Percentile,
                extra_options={"CalibPercentile": PERCENTILE},
            )
        graph = onnx.load(written)
    _refer_again(onnx.load(path, load_external_data=False), graph)
    _split_range(_with_weights(path), graph, seen)  # `plain` was changed
    return EightBitGraph(graph)


def measure(bundle: Bundle, graph: EightBitGraph, held_out: Labelled) -> dict[str, Any]:
    """Measure what 8 bits do to answers and presence on the last training images.

    Raises:
        ExportError: this processor does not compute what the graph says, or the share of wrong
            answers rises by more than MAX_LOST.
    """
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, f"{EIGHT_BITS}.onnx")
        with path.open("wb") as file:
            graph.save(file)
        shutil.copy(bundle.path / WEIGHTS, scratch)
        eight, exact = open_session(path), open_session(path, exact=True)
    full = open_session(bundle.graph("encoder"))
    before, after = (_presence(session, held_out.images) for session in (full, eight))
    difference = np.abs(_presence(exact, held_out.images[:BATCH]) - after[:BATCH]).max()
    if not difference <= TOLERANCE:
        raise ExportError(f"{EIGHT_BITS}: integer products are off by {difference:.2e} here")
    labels, moved = held_out.labels, np.abs(after - before).max(axis=1)
    errors_before, errors_after = (
        int(is_wrong(presence, labels).sum()) for presence in (before, after)
    )
    if errors_after - errors_before > MAX_LOST * len(labels):
        raise ExportError(
            f"{EIGHT_BITS}: {errors_after} instead of {errors_before} of {len(labels)} answers are "
            "wrong"
        )
    return {
        "validation_images": len(labels),
        "calibration_images": CALIBRATION_IMAGES,
        "errors_before": errors_before,
        "errors_after": errors_after,
        "answers_changed": int((answer(before, labels) != answer(after, labels)).any(axis=1).sum()),
        "mean_presence_change": round(float(moved.mean()), 5),
        "largest_presence_change": round(float(moved.max()), 4),
    }


class _Images(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """Batches of images of one size, as onnxruntime's calibration reads them."""

    def __init__(self, images: Floats) -> None:
        size = min(32, len(images))
        starts = range(0, len(images) - size + 1, size)
        self._batches: Iterator[Mapping[str, Floats]] = iter(
            [{"images": images[start : start + size]} for start in starts]
        )

    def get_next(self) -> Mapping[str, Floats] | None:
        return next(self._batches, None)


def _presence(session: Any, images: NDArray[np.uint8]) -> Floats:
    parts = [
        session.run(["presence"], {"images": scale(images[start : start + BATCH])})[0]
        for start in range(0, len(images), BATCH)
    ]
    return np.concatenate(parts)


def _with_weights(path: Path) -> onnx.ModelProto:
    """The graph with its weights inside, in float32."""
    model = onnx.load(path)
    stored = {weight.name: weight for weight in model.graph.initializer}
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if node.op_type == "Cast" and node.input[0].endswith(_STORED):
            weight = stored[node.input[0]]
            widened = numpy_helper.to_array(weight).astype(np.float32)
            model.graph.initializer.remove(weight)
            model.graph.initializer.append(numpy_helper.from_array(widened, node.output[0]))
        else:
            model.graph.node.append(node)
    return model


def _refer_again(original: onnx.ModelProto, graph: onnx.ModelProto) -> None:
    """Replace weights by references to the file of weights, which the first nodes widen and round.

    Args:
        original: the graph that was quantised, with its references.
        graph: the quantised one, whose weights are inside.
    """
    stored = {
        weight.name.removesuffix(_STORED): weight
        for weight in original.graph.initializer
        if weight.name.endswith(_STORED)
    }
    inside = {weight.name: weight for weight in graph.graph.initializer}
    dequantised = {
        node.input[0]: node for node in graph.graph.node if node.op_type == "DequantizeLinear"
    }
    first = []
    for name, reference in stored.items():
        rounded = inside.get(f"{name}_quantized")
        for weight in (inside.get(name), rounded):
            if weight is not None:
                graph.graph.initializer.remove(weight)
        graph.graph.initializer.append(reference)
        first.append(helper.make_node("Cast", [reference.name], [name], to=onnx.TensorProto.FLOAT))
        if rounded is not None:
            scales = dequantised[rounded.name]
            inputs = [name, *scales.input[1:]]
            first.append(helper.make_node("QuantizeLinear", inputs, [rounded.name], axis=0))
    nodes = [*first, *graph.graph.node]
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)


def _split_range(plain: onnx.ModelProto, graph: onnx.ModelProto, images: Floats) -> None:
    """Round the output of the last convolution by a range for each channel.

    onnxruntime rounds all channels by one range. So the scales of a channel's weights are divided
    by the channel's own range, and the rounded output is multiplied by it.
    """
    nodes, constants = list(graph.graph.node), graph.graph.initializer
    known = {constant.name: constant for constant in constants}
    makers = {output: node for node in nodes for output in node.output}
    users = {name: node for node in nodes for name in node.input}
    last = [node for node in nodes if node.op_type == "Conv"][-1]
    rounding = users[last.output[0]]
    widening = users[rounding.output[0]]
    ranges = _find_ranges(plain, last.output[0], images)

    def add(name: str, values: NDArray[Any]) -> str:
        constants.append(numpy_helper.from_array(values, f"{last.name}_{name}"))
        return str(constants[-1].name)

    for place, weight in enumerate(last.input[1:]):
        scaled = makers[weight]
        scale_of_all = numpy_helper.to_array(known[scaled.input[1]])
        scaled.input[1] = add(f"scale_{place}", scale_of_all / ranges)
    step, middle = np.float32(1 / 127), np.uint8(128)
    limits = [add("step", np.asarray(step)), add("middle", np.asarray(middle))]
    for node in (rounding, widening):
        node.input[1], node.input[2] = limits
    output = widening.output[0]
    widening.output[0] = f"{output}_of_range"
    inputs = [widening.output[0], add("ranges", ranges[:, None, None])]
    nodes.insert(nodes.index(widening) + 1, helper.make_node("Mul", inputs, [output]))
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)


def _find_ranges(plain: onnx.ModelProto, output: str, images: Floats) -> Floats:
    """The largest magnitude of each channel of an output (N, C, H, W), (C,)."""
    probe = onnx.ModelProto()
    probe.CopyFrom(plain)
    probe.graph.output.append(helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None))
    with tempfile.TemporaryDirectory() as scratch:
        onnx.save(probe, Path(scratch, "probe.onnx"))
        session = open_session(Path(scratch, "probe.onnx"))
    batches = [images[start : start + BATCH] for start in range(0, len(images), BATCH)]
    outputs = [session.run([output], {"images": batch})[0] for batch in batches]
    ranges = [np.abs(values).max(axis=(0, 2, 3)) for values in outputs]
    largest: Floats = np.max(ranges, axis=0)
    return np.maximum(largest, np.float32(1e-6))


@contextmanager
def _quietly() -> Iterator[None]:
    """Leave out the progress of onnxruntime's calibration, and its advice to optimise the graph.

    Optimised, the graph would not have the bundle's weights any more.
    """
    root = logging.getLogger()
    disabled, root.disabled = root.disabled, True
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        root.disabled = disabled
