"""From a trained network to a bundle: graphs, 16-bit weights, a manifest and a parity check."""

from __future__ import annotations

import hashlib
import logging
import math
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import external_data_helper, helper, numpy_helper
from torch import Tensor, nn

from model.bundle import (
    DECODER,
    ENCODER,
    GRAPHS,
    ROUTING,
    WEIGHTS,
    Bundle,
    BundleError,
    Manifest,
    digest,
    write_manifest,
)
from model.capsnet import CapsNet
from model.preprocess import scale
from model.runtime import Runtime
from training.datasets import Examples
from training.evaluation import predict

OPSET = 20
PARITY_BATCHES = (1, 2, 7, 32)
PARITY_TOLERANCE = 1e-4
BATCH_TOLERANCE = 1e-5
"""How far an image's answer may move with what else is in its batch."""
_SMALLEST_STORED = 1024
"""Elements from which a weight goes to weights.bin; smaller ones stay in the graph, as they are."""
_ALIGNMENT = 64
_FORBIDDEN = {"Shape", "Loop", "If", "Scan", "Einsum"}


class ExportError(BundleError):
    """The bundle was not written; the message says why."""


def export_bundle(
    network: CapsNet, manifest: Manifest, target: Path, *, validation: Examples
) -> Bundle:
    """Write `target`, or nothing.

    Args:
        network: the trained network; its weights are rounded as they will be stored.
        manifest: everything but the digests and what rounding did, which are filled in here.
        target: the bundle's folder; an older bundle there is replaced at the end.
        validation: digits on which the effect of rounding is measured.

    Raises:
        ExportError: rounding moved the score, a graph holds an operator that CUDA graphs cannot
            capture, or the exported network does not compute what the trained one does.
    """
    network = network.cpu().eval()
    rounding = round_weights(network, validation)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as scratch:
        folder = Path(scratch) / target.name
        folder.mkdir()
        write_graphs(network, folder)
        digests = {name: digest(folder / name, folder) for name in (*GRAPHS, WEIGHTS)}
        write_manifest(folder, replace(manifest, sha256=digests, rounding=rounding))
        check_parity(network, Runtime(Bundle.open(folder), device="cpu"))
        if target.exists():
            shutil.rmtree(target)
        folder.rename(target)
    return Bundle.open(target)


def round_weights(network: CapsNet, validation: Examples) -> dict[str, Any]:
    """Round the large weights to 16 bits, in place.

    Returns:
        what that did to lengths and answers on the validation digits.

    Raises:
        ExportError: a weight does not fit, or the wrong answers change by more than one in a
            thousand digits.
    """
    images = torch.from_numpy(scale(validation.images[:500]))
    device = torch.device("cpu")
    answers = predict(network, validation.images, device=device)
    with torch.inference_mode():
        lengths = network(images).lengths
        for parameter in network.parameters():
            if parameter.numel() >= _SMALLEST_STORED:
                parameter.copy_(parameter.half())
        moved = (network(images).lengths - lengths).abs().max().item()
    rounded_answers = predict(network, validation.images, device=device)
    wrong, rounded_wrong = (
        int((given != validation.labels).sum()) for given in (answers, rounded_answers)
    )
    if not math.isfinite(moved) or abs(rounded_wrong - wrong) > len(answers) / 1000:
        raise ExportError(f"16-bit weights move the errors from {wrong} to {rounded_wrong}")
    return {
        "stored_bits": 16,
        "validation_images": len(answers),
        "errors_before": wrong,
        "errors_after": rounded_wrong,
        "answers_changed": int((answers != rounded_answers).sum()),
        "largest_length_change": moved,
    }


def write_graphs(network: CapsNet, folder: Path) -> None:
    """Write the three graphs and the weights they share.

    Raises:
        ExportError: a graph holds a forbidden operator.
    """
    config = network.config
    images = torch.zeros(2, 1, config.image_size, config.image_size)
    poses, classes = torch.zeros(2, config.class_dim), torch.zeros(2, dtype=torch.int64)
    encoder = _trace(network, {"images": images}, ("lengths", "poses"))
    decoder = _trace(network.decoder, {"poses": poses, "classes": classes}, ("images",))
    routing = _trace(
        _RoutingGraph(network),
        {"images": images},
        ("couplings", "logits", "route_poses", "primary_lengths", "votes"),
    )
    weights = WeightStore()
    for name, graph in ((ENCODER, encoder), (DECODER, decoder), (ROUTING, routing)):
        forbidden = _FORBIDDEN & {node.op_type for node in graph.graph.node}
        if forbidden:
            raise ExportError(f"{name} holds {', '.join(sorted(forbidden))}")
        weights.move_from(graph)
        onnx.save(graph, folder / name)
    (folder / WEIGHTS).write_bytes(weights.content)


class WeightStore:
    """The content of weights.bin: float16 tensors, each stored once."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._offsets: dict[str, int] = {}

    def move_from(self, graph: onnx.ModelProto) -> None:
        """Move the graph's large float32 weights here; a Cast widens each when it is loaded.

        Raises:
            ExportError: a weight is not a 16-bit number, so storing it would change the network.
        """
        casts = []
        for initializer in graph.graph.initializer:
            values = numpy_helper.to_array(initializer)
            if values.dtype != np.float32 or values.size < _SMALLEST_STORED:
                continue
            halves = values.astype(np.float16)
            if not np.array_equal(halves.astype(np.float32), values):
                raise ExportError(f"{initializer.name} was not rounded to 16 bits")
            name, stored = initializer.name, f"{initializer.name}.float16"
            initializer.CopyFrom(numpy_helper.from_array(halves, stored))
            offset = self._store(initializer.raw_data)
            external_data_helper.set_external_data(
                initializer, WEIGHTS, offset=offset, length=len(initializer.raw_data)
            )
            initializer.ClearField("raw_data")
            casts.append(helper.make_node("Cast", [stored], [name], to=onnx.TensorProto.FLOAT))
        nodes = [*casts, *graph.graph.node]
        del graph.graph.node[:]
        graph.graph.node.extend(nodes)

    def _store(self, data: bytes) -> int:
        key = hashlib.sha256(data).hexdigest()
        if key not in self._offsets:
            self.content += bytes(-len(self.content) % _ALIGNMENT)
            self._offsets[key] = len(self.content)
            self.content += data
        return self._offsets[key]


def check_parity(network: CapsNet, runtime: Runtime) -> None:
    """Compare a loaded bundle with the network holding the same rounded weights.

    Images are random strokes-like noise: sparse, in [0, 1], seeded.

    Raises:
        ExportError: an output differs by more than 1e-4, or an image's answer moves by more than
            1e-5 with its batch.
    """
    generator = torch.Generator().manual_seed(0)
    size, config = network.config.image_size, network.config
    images = torch.rand(max(PARITY_BATCHES), 1, size, size, generator=generator)
    images = images * (torch.rand(images.shape, generator=generator) < 0.2)
    classes = torch.arange(len(images)) % config.num_classes
    with torch.inference_mode():
        view = network.look_inside(images)
        expected = network(images)
        own = expected.poses[torch.arange(len(images)), classes]
        drawn = network.decode(own, classes)
    for count in PARITY_BATCHES:
        part = images[:count].numpy()
        pairs = {
            "encoder": zip(runtime.encode(part), expected, strict=True),
            "decoder": ((runtime.decode(own[:count].numpy(), classes[:count].numpy()), drawn),),
            "routing": zip(
                runtime.route(part),
                (*view.trace[:2], view.trace.poses, view.primary_lengths, view.votes),
                strict=True,
            ),
        }
        for graph, outputs in pairs.items():
            for actual, wanted in outputs:
                _compare(graph, actual, wanted[:count].numpy(), PARITY_TOLERANCE)
    alone = runtime.encode(images[:1].numpy())
    together = runtime.encode(images.numpy())
    for single, batched in zip(alone, together, strict=True):
        _compare("an image alone and in a batch", single, batched[:1], BATCH_TOLERANCE)


def _compare(what: str, actual: Any, expected: Any, tolerance: float) -> None:
    difference = float(np.abs(actual - expected).max())
    if actual.shape != expected.shape or not difference <= tolerance:
        raise ExportError(f"{what}: off by {difference:.2e}, more than {tolerance:.0e}")


class _RoutingGraph(nn.Module):
    """`look_inside` as a flat tuple, which is what a graph can give."""

    def __init__(self, network: CapsNet) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        view = self.network.look_inside(images)
        return (*view.trace, view.primary_lengths, view.votes)


def _trace(
    module: nn.Module, inputs: Mapping[str, Tensor], outputs: tuple[str, ...]
) -> onnx.ModelProto:
    """One module as a graph whose first axis, the batch, is dynamic."""
    batch = torch.export.Dim("batch")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=tuple({0: batch} for _ in inputs),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    graph = program.model_proto
    for part in (graph, graph.graph, *graph.graph.node, *graph.graph.value_info):
        part.ClearField("metadata_props")  # stack traces and paths of the exporting machine
    return graph
