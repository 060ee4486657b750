"""Read a network that was trained elsewhere: ONNX files, or a module of PyTorch, as graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import external_data_helper, numpy_helper
from torch import Tensor, nn

from model.preprocess import Floats
from model.runtime.cpu import open_session
from training.graphs import ExportError, to_onnx
from training.python_file import PythonFileError, run_file

_OLDEST_OPSET = 13
"""From this operator set on, `Softmax` is of one axis."""
_UNREADABLE = (
    *(DecodeError, onnx.checker.ValidationError),
    *(KeyError, MemoryError, OSError, OverflowError, TypeError, ValueError),
)
"""What onnx and numpy raise for files that are broken or something else."""


class Foreign(NamedTuple):
    """A network that was trained elsewhere, as graphs."""

    encoder: onnx.ModelProto
    decoder: onnx.ModelProto | None
    answer: Callable[[Floats], list[Floats]]
    """Answers images as the network itself does, to compare the bundle with it."""


def read_foreign(
    source: str,
    *,
    decoder: Path | None = None,
    image_shape: tuple[int, int, int] | None = None,
    logits: bool = False,
) -> Foreign:
    """Read a network.

    Args:
        source: an ONNX file, or `FILE.py:NAME`, where NAME is a `torch.nn.Module` or a function
            without arguments that returns one. The module maps images to presence, or to presence
            and poses; its attribute `decoder`, if it has one, is a module that maps poses and
            classes to images.
        decoder: an ONNX file, for a source that is an ONNX file.
        image_shape: (C, H, W), for a module.
        logits: whether the first output is logits and not presence.

    Raises:
        ExportError: it cannot be read.
    """
    file, colon, name = source.rpartition(":")
    if colon and file.endswith(".py"):
        if image_shape is None:
            raise ExportError("a module does not say the size of its images: give --size")
        return _trace(_load_module(Path(file), name), image_shape, logits=logits)

    def answer(images: Floats) -> list[Floats]:
        session = open_session(Path(source))
        (entry,) = session.get_inputs()
        outputs: list[Floats] = session.run(None, {entry.name: images})
        return outputs

    return Foreign(_read_onnx(Path(source)), _read_onnx(decoder) if decoder else None, answer)


def _load_module(file: Path, name: str) -> nn.Module:
    try:
        found = getattr(run_file(file), name, None)
    except PythonFileError as error:
        raise ExportError(str(error)) from None
    module = found() if callable(found) and not isinstance(found, nn.Module) else found
    if not isinstance(module, nn.Module):
        raise ExportError(f"{file} has no {name!r} that is a torch.nn.Module or returns one")
    return module.cpu().float().eval()


class _Encoder(nn.Module):
    """A network's presence and, if it has a decoder, poses."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.outputs = 1 + isinstance(getattr(network, "decoder", None), nn.Module)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        outputs = self.network(images)
        return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)[: self.outputs]


def _trace(network: nn.Module, image_shape: tuple[int, int, int], *, logits: bool) -> Foreign:
    wrapped, images = _Encoder(network), torch.rand(2, *image_shape)
    try:
        with torch.inference_mode():
            outputs = wrapped(images)
    except RuntimeError as error:
        shape = "x".join(map(str, image_shape))
        raise ExportError(f"the module does not take images of {shape}: {error}") from error
    names = ("logits" if logits else "presence", "poses")[: len(outputs)]
    encoder, decoder = to_onnx(wrapped, {"images": images}, names), None
    if len(outputs) > 1:
        poses = torch.zeros(2, outputs[1].shape[2])
        inputs = {"poses": poses, "classes": torch.zeros(2, dtype=torch.int64)}
        decoder = to_onnx(network.decoder, inputs, ("images",))  # type: ignore[arg-type]

    def answer(batch: Floats) -> list[Floats]:
        with torch.inference_mode():
            return [output.numpy() for output in wrapped(torch.from_numpy(batch))]

    return Foreign(encoder, decoder, answer)


def _read_onnx(path: Path) -> onnx.ModelProto:
    """Read a graph, and the weights that it has in a file of their own.

    onnx refuses weights outside the folder of the graph, links to others, and what is no file.

    Raises:
        ExportError: it is no ONNX file, or names another file than `NAME.data` for its weights.
    """
    if not path.is_file():
        raise ExportError(f"{path} cannot be read as an ONNX file: there is no such file")
    try:
        _check_external(onnx.load(path, load_external_data=False), path)
        graph = onnx.load(path)
        onnx.checker.check_model(graph)
        for weight in graph.graph.initializer:
            numpy_helper.to_array(weight)
    except _UNREADABLE as error:
        raise ExportError(f"{path} cannot be read as an ONNX file: {error}") from error
    if (opset := graph.opset_import[0].version) < _OLDEST_OPSET:
        raise ExportError(f"{path} has opset {opset}: export it with {_OLDEST_OPSET} or later")
    return graph


def _check_external(graph: onnx.ModelProto, path: Path) -> None:
    """Refuse weights in a file whose name does not say that it is the model's."""
    allowed = {f"{path.name}.data", f"{path.stem}.data", f"{path.name}_data"}
    for tensor in external_data_helper._get_all_tensors(graph):  # noqa: SLF001  has no public name
        if external_data_helper.uses_external_data(tensor):
            location = external_data_helper.ExternalDataInfo(tensor).location
            if location not in allowed:
                raise ValueError(
                    f"its weights are in {location!r}; export them to {path.name}.data"
                )
