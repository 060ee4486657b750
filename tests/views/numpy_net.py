"""A network of ten lines, whose every number can be checked by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.bundle import Layer, Manifest
from model.outputs import ClassTrace, Encoding, Trace
from model.preprocess import Floats

P = ParamSpec("P")
T = TypeVar("T")
SIDE = 4
LAYER = Layer("capsules", 1, types=1, rows=2, columns=2, field_px=2, stride_px=2)
MANIFEST = Manifest(
    name="halves",
    family="dynamic",
    dataset="none",
    class_names=("top", "bottom"),
    channels=1,
    height=SIDE,
    width=SIDE,
    class_dim=2,
    preprocess="digit",
    presence="length",
    offers=("decode", "trace"),
    graphs={"encoder": "encoder.onnx", "decoder": "decoder.onnx", "routing": "routing.onnx"},
    layers=(LAYER,),
    opset=20,
    routing="iterations",
    version="1",
)


@dataclass
class NumpyNet:
    """Presence of `top` and `bottom` is the mean of that half, its pose the means of its sides.

    The decoder paints the class's half with the pose.
    """

    manifest: Manifest = MANIFEST
    rows: int = field(default=0)
    """What it has computed."""

    async def encode(self, images: Sequence[Floats]) -> list[Encoding[Floats] | Exception]:
        """Encode each image."""
        self.rows += len(images)
        cells = [image.reshape(2, 2, 2, 2).mean(axis=(1, 3)) for image in images]
        return [Encoding(cell.mean(axis=1), cell) for cell in cells]

    async def decode(self, poses: Floats, labels: int | NDArray[np.int64]) -> Floats:
        """Decode each pose."""
        self.rows += len(poses)
        images = np.zeros((len(poses), 1, 2, 2), np.float32)
        images[np.arange(len(poses)), 0, labels] = poses
        return images.repeat(2, axis=2).repeat(2, axis=3)

    async def trace(self, image: Floats) -> Trace[Floats]:
        """The halves' cells vote for their class alone."""
        self.rows += 1
        (encoding,) = await self.encode([image])
        assert isinstance(encoding, Encoding)
        votes = np.zeros((2, 4, 2), np.float32)
        for vote, (row, column) in enumerate(np.ndindex(2, 2)):
            votes[row, vote, column] = encoding.poses[row, column]
        half = np.full((1, 2, 4), 0.5, np.float32)
        zeros, seen = np.zeros((1, 2, 4), np.float32), np.ones(4, np.float32)
        return Trace(
            ClassTrace(half, zeros, encoding.presence[None], encoding.poses[None], seen, votes)
        )

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it."""
        return work(*args, **kwargs)
