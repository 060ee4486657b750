"""The protocol's models: each is one graph of a loaded bundle, with input and output tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.preprocess import Floats
from model.views.decode import MAX_COMPONENT
from model.views.net import encode_all
from model.views.novelty import score_encoded
from service.api.v2.tensors import Tensor, TensorSpec
from service.errors import InvalidParameter, unwrap
from service.http.request import Request
from service.pictures import ImageSpec

Tensors = dict[str, Tensor]
"""Tensors by name."""


class ProtocolModel(ABC):
    """One graph of a bundle, which the protocol calls a model.

    Args:
        manifest: of the bundle.
        max_rows: of one request.
    """

    suffix: ClassVar[str] = ""
    """The suffix of the model's name, after the bundle's name."""
    needs: ClassVar[Offer | None] = None

    def __init__(self, manifest: Manifest, max_rows: int) -> None:
        self.manifest, self.max_rows = manifest, max_rows

    @property
    def name(self) -> str:
        """The model's name in the protocol."""
        return self.manifest.name + self.suffix

    @property
    def max_values(self) -> int:
        """The largest number of values in one input tensor."""
        return self.max_rows * max(spec.values for spec in self.inputs)

    @property
    @abstractmethod
    def inputs(self) -> list[TensorSpec]:
        """The specifications of the input tensors."""

    @property
    @abstractmethod
    def outputs(self) -> list[TensorSpec]:
        """The specifications of the output tensors."""

    def cost(self, rows: int, wanted: set[str]) -> int:
        """Return the rows to admit for so many rows of the inputs."""
        del wanted
        return rows

    @abstractmethod
    async def compute(self, request: Request, inputs: Tensors, wanted: set[str]) -> Tensors:
        """The outputs that are wanted, perhaps others too.

        Raises:
            InvalidParameter: an input is missing, or given twice over.
            Closed, DeadlineExceeded: see `Batcher.submit`.
        """


class Encoder(ProtocolModel):
    """Encodes images, or image files, to presence and poses."""

    @property
    def inputs(self) -> list[TensorSpec]:
        """Images (N, C, H, W), or files (N, 1)."""
        return _image_inputs(self.manifest)

    @property
    def outputs(self) -> list[TensorSpec]:
        """Presence (N, K), poses (N, K, D); if asked for, what /classify says."""
        classes, dim = self.manifest.num_classes, self.manifest.class_dim
        return [
            TensorSpec("presence", "FP32", (classes,)),
            *([TensorSpec("poses", "FP32", (classes, dim))] if dim else []),
            TensorSpec("label", "INT64", optional=True),
            TensorSpec("class_name", "BYTES", optional=True),
            *([TensorSpec("novelty", "FP32", optional=True)] if self.manifest.novelty else []),
        ]

    def cost(self, rows: int, wanted: set[str]) -> int:
        """Return the rows that a request costs. Novelty decodes every image too."""
        return rows * (2 if "novelty" in wanted else 1)

    async def compute(self, request: Request, inputs: Tensors, wanted: set[str]) -> Tensors:
        """Encode the images as one batch."""
        images = await _read_images(request, self.manifest, inputs)
        net = request.net(self.manifest)
        encoding = await encode_all(net, list(images))
        labels = encoding.presence.argmax(axis=1)
        outputs: Tensors = {**encoding._asdict(), "label": labels[:, None]}
        if "class_name" in wanted:
            outputs["class_name"] = [self.manifest.class_names[label].encode() for label in labels]
        if "novelty" in wanted:
            novelty = await score_encoded(net, images, encoding)
            outputs["novelty"] = np.array([[novel.score] for novel in novelty], np.float32)
        return outputs


class Decoder(ProtocolModel):
    """Decodes poses and their labels to images."""

    suffix = ".decoder"
    needs = "decode"

    @property
    def inputs(self) -> list[TensorSpec]:
        """Poses (M, D) and labels (M, 1)."""
        largest = MAX_COMPONENT
        return [
            TensorSpec("poses", "FP32", (self.manifest.class_dim,), -largest, largest),
            TensorSpec("labels", "INT64", low=0, high=self.manifest.num_classes - 1),
        ]

    @property
    def outputs(self) -> list[TensorSpec]:
        """Images (M, C, H, W)."""
        return [TensorSpec("images", "FP32", self.manifest.image_shape)]

    async def compute(self, request: Request, inputs: Tensors, wanted: set[str]) -> Tensors:
        """Decode the poses as one batch."""
        del wanted
        if missing := {"poses", "labels"} - inputs.keys():
            raise InvalidParameter(f"the input {min(missing)} is missing", parameter=min(missing))
        poses, labels = np.asarray(inputs["poses"]), np.asarray(inputs["labels"])
        return {"images": await request.net(self.manifest).decode(poses, labels.ravel())}


class Routing(ProtocolModel):
    """An image to what routing did with it."""

    suffix = ".routing"
    needs = "trace"

    @property
    def inputs(self) -> list[TensorSpec]:
        """The encoder's."""
        return _image_inputs(self.manifest)

    @property
    def outputs(self) -> list[TensorSpec]:
        """The arrays of `model.outputs.Trace`, by their names there."""
        *hidden, last = self.manifest.layers
        steps, classes = last.iterations, self.manifest.num_classes
        votes, dim = last.capsules, self.manifest.class_dim
        rows = {
            "couplings": (steps, classes, votes),
            "logits": (steps, classes, votes),
            "presence": (steps, classes),
            "poses": (steps, classes, dim),
            "input_presence": (votes,),
            "votes": (classes, votes, dim),
        }
        for layer, following in zip(hidden, self.manifest.layers[1:], strict=True):
            grid = (following.types, following.rows, following.columns)
            rows[f"{layer.name}.couplings"] = (layer.iterations, following.types, layer.types)
            rows[f"{layer.name}.presence"] = (layer.iterations, *grid)
        return [TensorSpec(name, "FP32", row) for name, row in rows.items()]

    async def compute(self, request: Request, inputs: Tensors, wanted: set[str]) -> Tensors:
        """Trace the routing of one image."""
        del wanted
        (image,) = await _read_images(request, self.manifest, inputs)
        trace = await request.net(self.manifest).trace(image)
        return {name: array[None] for name, array in trace.named().items()}


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
