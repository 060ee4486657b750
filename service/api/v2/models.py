"""The protocol's models, and what one request has them compute, over HTTP and gRPC alike.

Each model is one graph of a loaded bundle, with input and output tensors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.preprocess import Floats
from model.views.decode import MAX_COMPONENT, MAX_POSES
from model.views.net import encode_all
from model.views.novelty import score_encoded
from service.api.v2.tensors import SentTensor, Tensors, TensorSpec
from service.errors import InvalidParameter, UnknownModel, unwrap
from service.http.request import Request
from service.inference.engine import graph_of
from service.pictures import ImageSpec

_BINARY_BYTES, _JSON_BYTES = 8, 22
"""The bytes of a value in an answer."""


@dataclass(frozen=True)
class ProtocolModel:
    """One graph of a bundle, which the protocol calls a model."""

    name: str
    manifest: Manifest
    """Of the bundle."""
    needs: Offer | None
    """What the network must offer."""
    max_rows: int
    """Of one request."""
    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    compute: Callable[[Request, Work], Awaitable[Tensors]]
    """Computes the wanted outputs, and perhaps others."""

    @property
    def max_values(self) -> int:
        """The largest number of values in one input tensor."""
        return self.max_rows * max(spec.values for spec in self.inputs)

    def describe(self) -> dict[str, Any]:
        """The model's metadata."""
        return {
            "name": self.name,
            "versions": [self.manifest.version],
            "platform": "onnxruntime_onnx",
            "inputs": [spec.describe() for spec in self.inputs],
            "outputs": [spec.describe() for spec in self.outputs],
        }


@dataclass(frozen=True)
class Work:
    """A request whose every tensor was checked."""

    model: ProtocolModel
    id: str
    """Of the request; empty where it has none."""
    rows: int
    inputs: Tensors
    outputs: list[tuple[TensorSpec, bool]]
    """The requested tensors, each with whether it is sent as raw bytes."""

    @property
    def wanted(self) -> set[str]:
        """The names of the requested tensors."""
        return {spec.name for spec, _ in self.outputs}

    @property
    def answer_bytes(self) -> int:
        """The bytes of the answer, at most or nearly so."""
        return self.rows * sum(
            spec.values * (_BINARY_BYTES if binary else _JSON_BYTES)
            for spec, binary in self.outputs
        )


def read_work(
    model: ProtocolModel,
    request_id: str,
    inputs: Iterable[SentTensor],
    outputs: list[tuple[TensorSpec, bool]],
) -> Work:
    """Check the inputs of a request to a model, and read them.

    Raises:
        Problem: a tensor is not one of the model's.
    """
    specs, tensors = {spec.name: spec for spec in model.inputs}, Tensors()
    for sent in inputs:
        spec = specs.pop(sent.name, None)
        if spec is None:
            known = ", ".join(spec.name for spec in model.inputs)
            text = f"{sent.name[:64]!r} is unknown or given twice; inputs: {known}"
            raise InvalidParameter(text, parameter="inputs")
        tensors[sent.name] = spec.read(sent, model.max_rows)
    rows = set(map(len, tensors.values()))
    if len(rows) != 1:
        raise InvalidParameter("all inputs have the same number of rows", parameter="inputs")
    return Work(model, request_id, rows.pop(), tensors, outputs)


def choose_outputs(
    model: ProtocolModel, names: Mapping[str, bool], *, binary: bool = False
) -> list[tuple[TensorSpec, bool]]:
    """The requested outputs, or the default ones, each with whether it is sent as raw bytes.

    Args:
        model: whose they are.
        names: of those that are requested, each with whether it is sent as raw bytes.
        binary: whether the default ones are.

    Raises:
        InvalidParameter: there is no such output.
    """
    specs = {spec.name: spec for spec in model.outputs}
    for name in names.keys() - specs.keys():
        text = f"{name[:64]!r} is unknown; outputs: {', '.join(specs)}"
        raise InvalidParameter(text, parameter="outputs")
    names = names or {name: binary for name, spec in specs.items() if not spec.optional}
    return [(specs[name], is_raw) for name, is_raw in names.items()]


async def compute(request: Request, work: Work) -> Tensors:
    """The outputs that are wanted, perhaps others too.

    Raises:
        Busy, TooLate: see `Claim.admit`.
        Unavailable: there is no room for the answer.
        Problem: an input is missing, or an image file cannot be read.
    """
    for spec in work.model.inputs:
        if not spec.optional and spec.name not in work.inputs:
            raise InvalidParameter(f"the input {spec.name} is missing", parameter=spec.name)
    request.claim.reserve_answer(work.answer_bytes)
    price = request.engine.price(work.model.manifest.name, graph_of(work.model.needs))
    request.admit(work.rows * (2 if "novelty" in work.wanted else 1), price=price)  # it decodes too
    return await work.model.compute(request, work)


def find(request: Request, name: str) -> ProtocolModel:
    """The model of a name.

    Raises:
        UnknownModel: it is not loaded.
    """
    bundle, dot, role = name.partition(".")
    make, needs, rows = _ROLES.get(dot + role, (None, None, 0))
    manifest = request.engine.manifests.get(bundle)
    if manifest is None or make is None or (needs and needs not in manifest.offers):
        raise UnknownModel(f"there is no model {name!r}", parameter="model")
    rows = rows or request.context.settings.max_pictures
    return ProtocolModel(name, manifest, needs, rows, *make(manifest))


def _encoder(manifest: Manifest) -> tuple[Any, ...]:
    """Images to presence and poses; if asked for, what /classify says."""
    classes, dim = manifest.num_classes, manifest.class_dim
    outputs = [
        TensorSpec("presence", "FP32", (classes,)),
        *([TensorSpec("poses", "FP32", (classes, dim))] if dim else []),
        TensorSpec("label", "INT64", optional=True),
        TensorSpec("class_name", "BYTES", optional=True),
        *([TensorSpec("novelty", "FP32", optional=True)] if manifest.novelty else []),
    ]
    return _image_inputs(manifest), outputs, _encode


async def _encode(request: Request, work: Work) -> Tensors:
    images = await _read_images(request, work)
    manifest = work.model.manifest
    net = request.net(manifest)
    encoding = await encode_all(net, list(images))
    labels = encoding.presence.argmax(axis=1)
    outputs: Tensors = {**encoding._asdict(), "label": labels[:, None]}
    if "class_name" in work.wanted:
        outputs["class_name"] = [manifest.class_names[label].encode() for label in labels]
    if "novelty" in work.wanted:
        novelty = await score_encoded(net, images, encoding)
        outputs["novelty"] = np.array([[novel.score] for novel in novelty], np.float32)
    return outputs


def _decoder(manifest: Manifest) -> tuple[Any, ...]:
    """Poses and their labels to images."""
    low, high = -MAX_COMPONENT, MAX_COMPONENT
    inputs = [
        TensorSpec("poses", "FP32", (manifest.class_dim,), low, high),
        TensorSpec("labels", "INT64", low=0, high=manifest.num_classes - 1),
    ]
    return inputs, [TensorSpec("images", "FP32", manifest.image_shape)], _decode


async def _decode(request: Request, work: Work) -> Tensors:
    poses, labels = np.asarray(work.inputs["poses"]), np.asarray(work.inputs["labels"])
    return {"images": await request.net(work.model.manifest).decode(poses, labels.ravel())}


def _routing(manifest: Manifest) -> tuple[Any, ...]:
    """An image to the arrays of `model.outputs.Trace`, by their names there."""
    *hidden, last = manifest.layers
    steps, classes = last.iterations, manifest.num_classes
    votes, dim = last.capsules, manifest.class_dim
    rows = {
        "couplings": (steps, classes, votes),
        "logits": (steps, classes, votes),
        "presence": (steps, classes),
        "poses": (steps, classes, dim),
        "input_presence": (votes,),
        "votes": (classes, votes, dim),
    }
    for layer, following in zip(hidden, manifest.layers[1:], strict=True):
        grid = (following.types, following.rows, following.columns)
        rows[f"{layer.name}.couplings"] = (layer.iterations, following.types, layer.types)
        rows[f"{layer.name}.presence"] = (layer.iterations, *grid)
    outputs = [TensorSpec(name, "FP32", row) for name, row in rows.items()]
    return _image_inputs(manifest), outputs, _trace


async def _trace(request: Request, work: Work) -> Tensors:
    (image,) = await _read_images(request, work)
    trace = await request.net(work.model.manifest).trace(image)
    return {name: array[None] for name, array in trace.named().items()}


_ROLES: Mapping[str, tuple[Callable[[Manifest], tuple[Any, ...]], Offer | None, int]] = {
    "": (_encoder, None, 0),
    ".decoder": (_decoder, "decode", MAX_POSES),
    ".routing": (_routing, "trace", 1),
}
"""By the suffix of a model's name: its tensors and function, what it needs, and its most rows.

No rows stand for as many as a request may have pictures.
"""


def _image_inputs(manifest: Manifest) -> list[TensorSpec]:
    return [
        TensorSpec("images", "FP32", manifest.image_shape, low=-1, high=2, optional=True),
        TensorSpec("image", "BYTES", optional=True),
    ]


async def _read_images(request: Request, work: Work) -> Floats:
    """Read images (N, C, H, W) from a tensor, or decode them from files.

    Raises:
        InvalidParameter: there are none, or both.
        Problem: a file cannot be read.
    """
    match list(work.inputs.items()):
        case [("images", np.ndarray() as images)]:
            return images
        case [("image", list() as files)]:
            manifest = work.model.manifest
            spec = ImageSpec(manifest.image_shape, manifest.preprocess)
            prepared = await request.context.pictures.decode(files, spec)
            return np.stack([unwrap(item).image for item in prepared])
    raise InvalidParameter("send either images or image", parameter="images")
