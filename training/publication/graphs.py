"""The graphs of a bundle, traced from a network, and the one file of weights that they share."""

from __future__ import annotations

import copy
import hashlib
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path

import onnx
import torch
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
from training.publication.storage import StoredWeight, narrow

OPSET = 20
_ALIGNMENT = 64
_FORBIDDEN = {"Shape", "Loop", "If", "Scan", "Einsum"}


class ExportError(BundleError):
    """The bundle was not written; the message says why."""


def write_graphs(network: CapsNet, folder: Path, bits: int = 16) -> None:
    """Write the graphs and the weights they share.

    Args:
        network: its weights are rounded to `bits`.

    Raises:
        ExportError: a graph holds a forbidden operator, or a weight was not rounded.
    """
    config = network.config
    weights = WeightStore(_name_as_traced(_narrow_exactly(network, bits)))
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
    """The content of weights.bin: each tensor is stored once.

    Args:
        weights: by name; whatever else a graph holds stays there.
    """

    def __init__(self, weights: Mapping[str, StoredWeight]) -> None:
        self._weights = weights
        self.content = bytearray()
        self._offsets: dict[str, int] = {}

    def move_from(self, graph: onnx.ModelProto) -> None:
        """Move the graph's large weights here; its first nodes widen them, when it is loaded."""
        initializers, weights = graph.graph.initializer, self._weights
        stays = [one for one in initializers if one.name not in weights]
        parts = [_widen(one, weights[one.name]) for one in initializers if one.name in weights]
        moved = [tensor for tensors, _ in parts for tensor in tensors]
        for tensor in moved:
            self._move(tensor)
        nodes = [*(node for _, widening in parts for node in widening), *graph.graph.node]
        del graph.graph.initializer[:], graph.graph.node[:]
        graph.graph.initializer.extend([*stays, *moved])
        graph.graph.node.extend(nodes)

    def _move(self, tensor: onnx.TensorProto) -> None:
        offset = self._store(tensor.raw_data)
        external_data_helper.set_external_data(
            tensor, WEIGHTS, offset=offset, length=len(tensor.raw_data)
        )
        tensor.ClearField("raw_data")

    def _store(self, data: bytes) -> int:
        key = hashlib.sha256(data).hexdigest()
        if key not in self._offsets:
            self.content += bytes(-len(self.content) % _ALIGNMENT)
            self._offsets[key] = len(self.content)
            self.content += data
        return self._offsets[key]


def _narrow_exactly(network: CapsNet, bits: int) -> dict[str, StoredWeight]:
    """The large weights as they are stored, by parameter; storing them changes none."""
    weights = narrow(network, bits)
    for name, stored in weights.items():
        if not torch.equal(stored.widen(), network.get_parameter(name)):
            raise ExportError(f"{name} was not rounded to {bits} bits")
    return weights


def _name_as_traced(weights: Mapping[str, StoredWeight]) -> dict[str, StoredWeight]:
    """The weights under the names that they have in the graphs."""
    routing = {f"network.{name}": stored for name, stored in weights.items()}
    decoder = {name.removeprefix("decoder."): stored for name, stored in weights.items()}
    return {**weights, **routing, **decoder}


def _widen(
    weight: onnx.TensorProto, stored: StoredWeight
) -> tuple[list[onnx.TensorProto], list[onnx.NodeProto]]:
    """The tensors that are stored of a graph's weight, and the nodes that make it of them."""
    name, float32 = weight.name, f"{weight.name}.float32"
    numbers = numpy_helper.from_array(stored.numbers.numpy(), f"{name}.stored")
    if stored.scales is None:
        return [numbers], [helper.make_node("Cast", [numbers.name], [name], to=weight.data_type)]
    scales = numpy_helper.from_array(stored.scales.numpy(), f"{name}.scales")
    inputs = [numbers.name, scales.name]
    nodes = [
        helper.make_node("DequantizeLinear", inputs, [float32], axis=stored.axis),
        helper.make_node("Cast", [float32], [name], to=weight.data_type),
    ]
    return [numbers, scales], nodes


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
