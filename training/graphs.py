"""The graphs of a bundle, exported from a network, and the one file of weights that they share."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import external_data_helper, helper, numpy_helper
from safetensors.torch import save
from torch import Tensor, nn

from model.bundle import WEIGHTS, BundleError
from model.bundle.manifest import ANY_SIZE
from model.capsnet import Network, family_of
from model.outputs import Encoding

LARGE = 1024
"""A matrix or kernel of at least this many elements is stored in 16 bits. Biases and norms stay as
they are: rounded, a norm would no longer be what `fold_norms` made of it."""
OPSET = 20
_FORBIDDEN = {"Shape", "Loop", "If", "Scan", "Einsum", "Scatter", "ScatterElements", "ScatterND"}
"""Operators that are refused: shapes and control flow, which CUDA graphs cannot capture,
scattering, and Einsum."""
_MAX_CONSTANT = 200_000
"""A graph may hold a tensor of this many bytes itself: Winograd's matrices, indices, small weights.
"""


class ExportError(BundleError):
    """The bundle was not written. The message says why."""


def refuse_difference(what: str, actual: Any, expected: Any, tolerance: float) -> None:
    """Refuse outputs that are NaN or differ by more than the tolerance.

    Args:
        tolerance: a share of the largest expected number where that is over 1.

    Raises:
        ExportError: they do, or their shapes differ.
    """
    if actual.shape != expected.shape:
        raise ExportError(f"{what}: {actual.shape} in place of {expected.shape}")
    actual, expected = np.asarray(actual), np.asarray(expected)
    difference = float(np.abs(actual - expected).max(initial=0))
    bound = tolerance * max(1.0, float(np.abs(expected).max(initial=0)))
    if not difference <= bound:  # or NaN
        raise ExportError(f"{what}: off by {difference:.2e}, more than {bound:.1e}")


@torch.no_grad()
def fold_norms(network: Network) -> None:
    """Fold the scale of batch normalisation into the convolution right before it, in place.

    The normalisation stays, and only adds to each channel in evaluation: its statistics become
    those of what the convolution now gives, so that weights still fit the network and learn as
    before. torch's exporter then leaves the convolution's weights as they are, and adds the same
    with its bias.
    """
    for module in network.modules():
        for conv, norm in pairwise(module.children()):  # in the order in which they are used
            if not (isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d)):
                continue
            if norm.running_mean is None or norm.running_var is None or not norm.affine:
                continue
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            conv.weight.mul_(scale[:, None, None, None])
            if conv.bias is not None:
                conv.bias.mul_(scale)
            norm.running_mean.mul_(scale)
            norm.running_var.copy_((norm.weight.square() - norm.eps).clamp_min(0))
            norm.weight.copy_((norm.running_var + norm.eps).sqrt())


@torch.no_grad()
def round_weights(network: Network) -> None:
    """Round a network's large weights in place to 16 bits, as a bundle holds them."""
    for parameter in network.parameters():
        if is_large(parameter):
            parameter.copy_(parameter.half())


def is_large(parameter: Tensor) -> bool:
    """Whether a bundle holds a parameter in 16 bits."""
    return parameter.ndim > 1 and parameter.numel() >= LARGE


def write_graphs(network: Network, folder: Path) -> None:
    """Write the weights and the graphs that share them, each called by its role.

    Args:
        network: in evaluation mode, its normalisations folded and its weights rounded.

    Raises:
        ExportError: a graph holds a forbidden operator, or holds large weights itself.
    """
    config, offers = network.config, family_of(network.config).offers
    offsets = _save_weights(network, folder / WEIGHTS)
    images = {"images": torch.zeros(2, *config.image_shape)}
    graphs: dict[str, onnx.ModelProto] = {
        role: to_onnx(module, images, ("presence", "poses"), any_size=role == ANY_SIZE)
        for role, module in network.encoders().items()
    }
    if "decode" in offers:
        poses = torch.zeros(2, config.class_dim)
        inputs = {"poses": poses, "classes": torch.zeros(2, dtype=torch.int64)}
        graphs["decoder"] = to_onnx(network.decoder, inputs, ("images",))
    if "trace" in offers:
        with torch.inference_mode():
            traced = network.trace(images["images"]).named()
        names = [f"trace_{name}" if name in Encoding._fields else name for name in traced]
        graphs["routing"] = to_onnx(FlatTrace(network), images, names)
    for role, graph in graphs.items():
        name = f"{role}.onnx"
        forbidden = _FORBIDDEN & {node.op_type for node in graph.graph.node}
        if forbidden and role != ANY_SIZE:
            raise ExportError(f"{name} holds {', '.join(sorted(forbidden))}")
        _refer_to(offsets, graph)
        onnx.save(graph, folder / name)


class FlatTrace(nn.Module):
    """A module whose `forward` returns the trace as a flat tuple, as a graph needs it."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network.encoders()["encoder"]

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Map (N, C, H, W) to all arrays of the class trace, then those of each hidden layer."""
        trace = self.network.trace(images)  # type: ignore[operator]
        return tuple(trace.named().values())


def _save_weights(network: Network, path: Path) -> dict[bytes, int]:
    """Write every parameter and buffer, large parameters in 16 bits.

    Returns:
        the offset in the file of each large parameter, by its bytes.
    """
    large = {name for name, parameter in network.named_parameters() if is_large(parameter)}
    tensors = {
        name: (tensor.half() if name in large else tensor).contiguous()
        for name, tensor in network.state_dict().items()
    }
    for name in large:
        if not torch.equal(tensors[name].float(), network.get_parameter(name)):
            raise ExportError(f"{name} was not rounded to 16 bits")
    content = save(tensors)
    path.write_bytes(content)
    start = 8 + int.from_bytes(content[:8], "little")  # of the tensors, after a JSON object
    header = json.loads(content[8:start])
    spans = ([start + offset for offset in header[name]["data_offsets"]] for name in large)
    return {content[first:end]: first for first, end in spans}


def _refer_to(offsets: Mapping[bytes, int], graph: onnx.ModelProto) -> None:
    """Replace a graph's large weights by references; its first nodes widen them, when loaded."""
    initializers, nodes = [], []
    for weight in graph.graph.initializer:
        with np.errstate(over="ignore"):  # of constants
            rounded = numpy_helper.to_array(weight).astype(np.float16).tobytes()
        if rounded not in offsets:
            if len(weight.raw_data) > _MAX_CONSTANT:
                raise ExportError(f"{weight.name} would be stored a second time")
            initializers.append(weight)
            continue
        stored = onnx.TensorProto(
            name=f"{weight.name}.stored",
            dims=weight.dims,
            data_type=onnx.TensorProto.FLOAT16,
            raw_data=b"",
        )
        external_data_helper.set_external_data(
            stored, WEIGHTS, offset=offsets[rounded], length=len(rounded)
        )
        stored.ClearField("raw_data")
        initializers.append(stored)
        nodes.append(helper.make_node("Cast", [stored.name], [weight.name], to=weight.data_type))
    nodes.extend(graph.graph.node)
    del graph.graph.initializer[:], graph.graph.node[:]
    graph.graph.initializer.extend(initializers)
    graph.graph.node.extend(nodes)


def to_onnx(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    *,
    any_size: bool = False,
) -> onnx.ModelProto:
    """Export a module as a graph whose batch is dynamic; so may be an image's sides."""
    axes: dict[int, Any] = {0: torch.export.Dim("batch")}
    if any_size:
        axes |= {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes=tuple(axes for _ in inputs),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    graph = program.model_proto
    for part in (graph, graph.graph, *graph.graph.node, *graph.graph.value_info):
        part.ClearField("metadata_props")  # stack traces and paths of the exporting machine
    return graph
