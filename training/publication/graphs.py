"""The graphs of a bundle, traced from a network, and the one file of weights that they share."""

from __future__ import annotations

import copy
import hashlib
import logging
import warnings
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import external_data_helper, helper, numpy_helper
from torch import Tensor, nn

from model.bundle import (
    DECODER,
    ENCODER,
    ENCODER_BATCH,
    ENCODER_HALF,
    ROUTING,
    WEIGHTS,
    BundleError,
)
from model.capsnet import CapsNet

OPSET = 20
SMALLEST_STORED = 1024
"""Elements from which a weight goes to weights.bin; smaller ones stay in the graph, as they are."""
_ALIGNMENT = 64
_FORBIDDEN = {"Shape", "Loop", "If", "Scan", "Einsum"}


class ExportError(BundleError):
    """The bundle was not written; the message says why."""


def write_graphs(network: CapsNet, folder: Path) -> None:
    """Write the graphs and the weights they share.

    Raises:
        ExportError: a graph holds a forbidden operator.
    """
    config = network.config
    images = torch.zeros(2, 1, config.image_size, config.image_size)
    poses, classes = torch.zeros(2, config.class_dim), torch.zeros(2, dtype=torch.int64)
    with network.primary.conv.directly():
        encoder = _trace(network, {"images": images}, ("lengths", "poses"))
        half = _trace(in_half_precision(network), {"images": images}, ("lengths", "poses"))
        routing = _trace(
            _RoutingGraph(network),
            {"images": images},
            ("couplings", "logits", "route_poses", "primary_lengths", "votes"),
        )
    batch = _trace(network, {"images": images}, ("lengths", "poses"))
    decoder = _trace(network.decoder, {"poses": poses, "classes": classes}, ("images",))
    traced = (network, network.decoder, _RoutingGraph(network))
    weights = WeightStore({name for module in traced for name, _ in module.named_parameters()})
    graphs = {
        ENCODER: encoder,
        DECODER: decoder,
        ROUTING: routing,
        ENCODER_HALF: half,
        ENCODER_BATCH: batch,
    }
    for name, graph in graphs.items():
        forbidden = _FORBIDDEN & {node.op_type for node in graph.graph.node}
        if forbidden:
            raise ExportError(f"{name} holds {', '.join(sorted(forbidden))}")
        weights.move_from(graph)
        onnx.save(graph, folder / name)
    (folder / WEIGHTS).write_bytes(weights.content)


def in_half_precision(network: CapsNet) -> CapsNet:
    """A copy whose convolutions and votes are float16; squash, routing and lengths stay float32."""
    half = copy.deepcopy(network)
    half.conv.half()
    half.primary.half()
    half.classes.weight.data = half.classes.weight.data.half()
    return half


class WeightStore:
    """The content of weights.bin: float16 tensors, each stored once.

    Args:
        names: of the weights; whatever else a graph holds, no training made, and it stays there.
    """

    def __init__(self, names: AbstractSet[str]) -> None:
        self._names = names
        self.content = bytearray()
        self._offsets: dict[str, int] = {}

    def move_from(self, graph: onnx.ModelProto) -> None:
        """Move the graph's large weights here; a Cast widens those of float32 when it is loaded.

        Raises:
            ExportError: a weight is not a 16-bit number, so storing it would change the network.
        """
        casts = []
        for initializer in graph.graph.initializer:
            values = numpy_helper.to_array(initializer)
            if values.size < SMALLEST_STORED or initializer.name not in self._names:
                continue
            if values.dtype == np.float32:
                casts.append(_narrow(initializer, values))
            offset = self._store(initializer.raw_data)
            external_data_helper.set_external_data(
                initializer, WEIGHTS, offset=offset, length=len(initializer.raw_data)
            )
            initializer.ClearField("raw_data")
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


def _narrow(initializer: onnx.TensorProto, values: NDArray[np.float32]) -> onnx.NodeProto:
    """Store a weight in float16; gives the Cast that widens it."""
    name, stored = initializer.name, f"{initializer.name}.float16"
    halves = values.astype(np.float16)
    if not np.array_equal(halves.astype(np.float32), values):
        raise ExportError(f"{name} was not rounded to 16 bits")
    initializer.CopyFrom(numpy_helper.from_array(halves, stored))
    return helper.make_node("Cast", [stored], [name], to=onnx.TensorProto.FLOAT)


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
