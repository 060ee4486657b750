"""A network of ten lines, whose every number can be checked by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

import numpy as np

from model.bundle import Layer, Manifest
from model.outputs import ClassTrace, Graph, Row
from model.preprocess import Floats
from model.views.net import Net

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
class NumpyNet(Net):
    """Presence of `top` and `bottom` is the mean of that half, its pose the means of its sides.

    The decoder paints the class's half with the pose.
    """

    manifest: Manifest = MANIFEST
    rows: int = field(default=0)
    """What it has computed."""

    async def compute(self, graph: Graph, rows: Sequence[Row]) -> list[Row]:
        """Compute each row."""
        self.rows += len(rows)
        compute: Callable[..., Row] = getattr(self, f"_{graph}")
        return [compute(*row) for row in rows]

    def _encode(self, image: Floats) -> Row:
        cells = image.reshape(2, 2, 2, 2).mean(axis=(1, 3))
        return cells.mean(axis=1), cells

    def _decode(self, pose: Floats, label: int) -> Row:
        image = np.zeros((1, 2, 2), np.float32)
        image[0, label] = pose
        return (image.repeat(2, axis=1).repeat(2, axis=2),)

    def _trace(self, image: Floats) -> Row:
        """The halves' cells vote for their class alone."""
        presence, poses = self._encode(image)
        votes = np.zeros((2, 4, 2), np.float32)
        for vote, (row, column) in enumerate(np.ndindex(2, 2)):
            votes[row, vote, column] = poses[row, column]
        half = np.full((1, 2, 4), 0.5, np.float32)
        zeros, seen = np.zeros((1, 2, 4), np.float32), np.ones(4, np.float32)
        return ClassTrace(half, zeros, presence[None], poses[None], seen, votes)

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it."""
        return work(*args, **kwargs)
