"""The protocol's models: each is one graph of a loaded bundle, with input and output tensors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.preprocess import Floats
from model.views.decode import MAX_COMPONENT, MAX_POSES
from model.views.net import encode_all
from model.views.novelty import score_encoded
from service.api.v2.tensors import Tensors, TensorSpec
from service.errors import InvalidParameter, UnknownModel, unwrap
from service.http.request import Request
from service.http.route import Query
from service.pictures import ImageSpec

PLATFORM = "onnxruntime_onnx"


class ProtocolModelPath(Query):
    """The parameters of routes for one model."""

    of_path: ClassVar = frozenset({"name"})
    name: str = Field(examples=["mnist"])


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
    compute: Callable[[Request, Manifest, Tensors, set[str]], Awaitable[Tensors]]
    """Computes the wanted outputs, and perhaps others, of a request's inputs.

    It raises InvalidParameter where an input is missing or given twice over.
    """

    @property
    def max_values(self) -> int:
        """The largest number of values in one input tensor."""
        return self.max_rows * max(spec.values for spec in self.inputs)

    def describe(self) -> dict[str, Any]:
        """The model's metadata."""
        return {
            "name": self.name,
            "versions": [self.manifest.version],
            "platform": PLATFORM,
            "inputs": [_describe(spec) for spec in self.inputs],
            "outputs": [_describe(spec) for spec in self.outputs],
        }


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


async def _encode(
    request: Request, manifest: Manifest, inputs: Tensors, wanted: set[str]
) -> Tensors:
    images = await _read_images(request, manifest, inputs)
    net = request.net(manifest)
    encoding = await encode_all(net, list(images))
    labels = encoding.presence.argmax(axis=1)
    outputs: Tensors = {**encoding._asdict(), "label": labels[:, None]}
    if "class_name" in wanted:
        outputs["class_name"] = [manifest.class_names[label].encode() for label in labels]
    if "novelty" in wanted:
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


async def _decode(
    request: Request, manifest: Manifest, inputs: Tensors, _wanted: set[str]
) -> Tensors:
    if missing := {"poses", "labels"} - inputs.keys():
        raise InvalidParameter(f"the input {min(missing)} is missing", parameter=min(missing))
    poses, labels = np.asarray(inputs["poses"]), np.asarray(inputs["labels"])
    return {"images": await request.net(manifest).decode(poses, labels.ravel())}


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


async def _trace(
    request: Request, manifest: Manifest, inputs: Tensors, _wanted: set[str]
) -> Tensors:
    (image,) = await _read_images(request, manifest, inputs)
    trace = await request.net(manifest).trace(image)
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


async def _read_images(request: Request, manifest: Manifest, inputs: Tensors) -> Floats:
    """Read images (N, C, H, W) from a tensor, or decode them from files.

    Raises:
        InvalidParameter: there are none, or both.
        Problem: a file cannot be read.
    """
    match inputs:
        case {"images": np.ndarray() as images} if len(inputs) == 1:
            return images
        case {"image": list() as files} if len(inputs) == 1:
            spec = ImageSpec(manifest.image_shape, manifest.preprocess)
            prepared = await request.decode([*files], spec)
            return np.stack([unwrap(item).image for item in prepared])
    raise InvalidParameter("send either images or image", parameter="images")


def _describe(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": [-1, *spec.row]}
