"""Read a network that was trained elsewhere: ONNX files, or a module of PyTorch, as graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from google.protobuf.message import DecodeError
from torch import Tensor, nn

from model.preprocess import Floats
from training.graphs import ExportError, to_onnx
from training.python_file import PythonFileError, run_file

_OLDEST_OPSET = 13
"""From this operator set on, `Softmax` is of one axis."""


@dataclass(frozen=True)
class Foreign:
    """A network that was trained elsewhere, as graphs."""

    encoder: onnx.ModelProto
    decoder: onnx.ModelProto | None
    check: Callable[[Floats], list[Floats]] | None = None
    """Answers images as the network itself does, to compare the bundle with it."""


def read_foreign(
    source: str, *, decoder: Path | None = None, image_shape: tuple[int, int, int] | None = None
) -> Foreign:
    """Read a network.

    Args:
        source: an ONNX file, or `FILE.py:NAME`, where NAME is a `torch.nn.Module` or a function
            without arguments that returns one. The module maps images to presence, or to presence
            and poses; its attribute `decoder`, if it has one, is a module that maps poses and
            classes to images.
        decoder: an ONNX file, for a source that is an ONNX file.
        image_shape: (C, H, W), for a module.

    Raises:
        ExportError: it cannot be read.
    """
    file, colon, name = source.rpartition(":")
    if colon and file.endswith(".py"):
        if image_shape is None:
            raise ExportError("a module does not say the size of its images: give --size")
        return _trace(_load_module(Path(file), name), image_shape)
    return Foreign(_read_onnx(Path(source)), _read_onnx(decoder) if decoder else None)


def _load_module(file: Path, name: str) -> nn.Module:
    try:
        found = getattr(run_file(file), name, None)
    except PythonFileError as error:
        raise ExportError(str(error)) from None
    if found is None:
        raise ExportError(f"{file} has no {name!r}")
    module = found if isinstance(found, nn.Module) else found()
    if not isinstance(module, nn.Module):
        raise ExportError(f"{name} of {file} is no torch.nn.Module and returns none")
    return module.cpu().float().eval()


class _Encoder(nn.Module):
    """A network's presence and, if it has a decoder, poses."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Images (N, C, H, W) to presence (N, K) and, perhaps, poses (N, K, D)."""
        found = self.network(images)
        return (found,) if isinstance(found, Tensor) else tuple(found)


def _trace(network: nn.Module, image_shape: tuple[int, int, int]) -> Foreign:
    wrapped, images = _Encoder(network), torch.rand(2, *image_shape)
    try:
        with torch.inference_mode():
            outputs = wrapped(images)
    except RuntimeError as error:
        shape = "x".join(map(str, image_shape))
        raise ExportError(f"the module does not take images of {shape}: {error}") from error
    names = ("presence", "poses")[: len(outputs)]
    encoder = to_onnx(wrapped, {"images": images}, names)
    decoder = getattr(network, "decoder", None)
    graph = None
    if isinstance(decoder, nn.Module) and len(outputs) > 1:
        poses = torch.zeros(2, outputs[1].shape[2])
        inputs = {"poses": poses, "classes": torch.zeros(2, dtype=torch.int64)}
        graph = to_onnx(decoder, inputs, ("images",))

    def check(batch: Floats) -> list[Floats]:
        with torch.inference_mode():
            return [output.numpy() for output in wrapped(torch.from_numpy(batch))]

    return Foreign(encoder, graph, check)


def _read_onnx(path: Path) -> onnx.ModelProto:
    try:
        graph = onnx.load(str(path))
        onnx.checker.check_model(graph)
    except (OSError, DecodeError, onnx.checker.ValidationError) as error:
        raise ExportError(f"{path} cannot be read as an ONNX file: {error}") from error
    if (opset := graph.opset_import[0].version) < _OLDEST_OPSET:
        raise ExportError(f"{path} has opset {opset}: export it with {_OLDEST_OPSET} or later")
    return graph
