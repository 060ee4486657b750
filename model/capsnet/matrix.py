"""Hinton, Sabour and Frosst, "Matrix capsules with EM routing" (2018), from top to bottom.

A capsule has a 4x4 pose matrix and an activation. The class capsules' poses are given out as
D = 16 numbers, row by row.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from model.bundle import Layer
from model.capsnet import em
from model.capsnet.decoder import build_decoder
from model.capsnet.em import Parents, Windows
from model.capsnet.network import STRICT, Network, NetworkConfig, Positive, Size
from model.capsnet.stem import (
    Conv,
    Geometry,
    Stem,
    StemLayer,
    geometry,
    initialise,
    out_channels,
)
from model.outputs import ClassTrace, Encoding, LayerTrace, Trace

SIDE = 4
"""A pose matrix has 4 rows and columns."""
_ABSENT = -1e30
_ABSENT_LOGIT = -2.0
"""The activation logit of a class without votes before training: absent, but able to learn."""


@dataclass(frozen=True, config=STRICT)
class MatrixConfig(NetworkConfig):
    """Sizes of a network of matrix capsules; the defaults are the paper's larger one."""

    stem: tuple[StemLayer, ...] = (Conv(32, 5, 2),)
    """The stem. A of the paper is the channels of its last convolution."""
    primary_types: Size = 32
    """The number of primary capsule types, B."""
    conv_caps: Annotated[tuple[Size, ...], Field(min_length=1)] = (32, 32)
    """The types of each layer of convolutional capsules, C and D. The first layer has stride 2."""
    routing_iterations: Size = 3
    inverse_temperature: Positive = 0.05
    """The lambda of the last iteration, for a parent with an equal share of its children."""
    log_p_divisor: Positive = 16.0
    """The divisor of ln p in the E-step: 1 in the paper."""
    batch_norm: bool = True
    """Batch normalisation of each convolution and of the primary capsules' poses and activations.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_dim != SIDE**2:
            raise ValueError(f"matrix capsules have poses of {SIDE**2} numbers")
        _ = self.grids

    @property
    def grids(self) -> tuple[Geometry, ...]:
        """The grids of the primary capsules and of each convolutional layer."""
        grids = [geometry(self.height, self.width, self.stem)]
        for index in range(len(self.conv_caps)):
            grids.append(grids[-1].then(3, 1 if index else 2))
        return tuple(grids)


class PrimaryMatrixCapsules(nn.Module):
    """A 1x1 convolution to B poses and B activations in each cell."""

    def __init__(self, config: MatrixConfig) -> None:
        super().__init__()
        self.types = config.primary_types
        sizes = SIDE**2 * self.types, self.types
        channels = out_channels(config.channels, config.stem)
        self.conv = nn.Conv2d(channels, sum(sizes), 1)
        self.norm = nn.BatchNorm2d(sum(sizes)) if config.batch_norm else None
        nn.init.trunc_normal_(self.conv.weight, std=0.5 / channels**0.5)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map features (N, A, h, w) to poses (N, cells, B, 4, 4) and activations (N, cells, B)."""
        maps = self.conv(features)
        if self.norm is not None:
            maps = self.norm(maps)
        cells = maps.flatten(2).transpose(1, 2).float()  # (N, cells, 17 B)
        poses, activations = cells.split((SIDE**2 * self.types, self.types), dim=2)
        shape = (-1, cells.shape[1], self.types, SIDE, SIDE)
        return poses.reshape(shape), activations.sigmoid()


class ConvCapsules(nn.Module):
    """Convolutional capsules: those in a window vote for the parents there (paper, section 4)."""

    cells: Tensor
    slots: Tensor

    def __init__(self, config: MatrixConfig, index: int) -> None:
        super().__init__()
        self.config = config
        before, self.grid = config.grids[index : index + 2]
        windows = Windows(before.rows, before.columns, kernel=3, stride=1 if index else 2)
        types = (config.primary_types, *config.conv_caps)
        self.in_types, self.out_types = types[index : index + 2]
        for name, indices in (("cells", windows.cells), ("slots", windows.slots)):
            self.register_buffer(name, torch.tensor(indices), persistent=False)
        self.window_count = len(windows.cells)
        self.inputs = windows.cells.shape[1] * self.in_types  # I of one window
        self.weight = nn.Parameter(_transformations(self.inputs, self.out_types))
        """(I, 4, C * 4): the transformation of each position and type of child for each parent."""
        self.price = nn.Parameter(torch.zeros(self.out_types))
        """beta_u, (C,), scaled: see `em.iterate`."""
        self.saving = nn.Parameter(torch.zeros(self.out_types))
        """beta_a, (C,), scaled: see `em.iterate`."""

    def forward(self, poses: Tensor, activations: Tensor) -> list[Parents]:
        """Route poses (N, cells, B, 4, 4) with activations (N, cells, B). Return every iteration.

        The axes of what is returned are (N, P, C, ...), P windows.
        """
        cells = self.cells.flatten()
        windows = poses.index_select(1, cells).reshape(
            -1, self.window_count, self.inputs, SIDE, SIDE
        )
        active = activations.index_select(1, cells).reshape(-1, self.window_count, 1, self.inputs)
        return list(
            em.iterate(
                _vote(windows, self.weight, self.out_types),
                active,
                beta_u=self.price,
                beta_a=self.saving,
                share=self.share,
                **_routing(self.config),
            )
        )

    def share(self, scores: Tensor) -> Tensor:
        """Return assignments (N, P, C, I) of children among parents of all types *and* windows."""
        positions = self.inputs // self.in_types
        log_mass = scores.logsumexp(dim=2)  # (N, P, I): over types
        flat = log_mass.reshape(-1, self.window_count * positions, self.in_types)
        absent = flat[:, :1] * 0 + _ABSENT
        gathered = torch.cat((flat, absent), dim=1).index_select(1, self.slots.flatten())
        shape = (-1, *self.slots.shape, self.in_types)
        per_child = gathered.reshape(shape).logsumexp(dim=2)  # (N, cells, B): over windows
        total = per_child.index_select(1, self.cells.flatten())
        return (scores - total.reshape(-1, self.window_count, 1, self.inputs)).exp()

    def trace(self, steps: list[Parents], activations: Tensor) -> LayerTrace[Tensor]:
        """Return couplings from type to type, and the parents' activations, by iteration."""
        cells = self.cells.flatten()
        active = activations.index_select(1, cells).reshape(-1, self.window_count, 1, self.inputs)
        shares = []
        for step in steps:
            mass = step.assignments * active  # (N, P, C, I)
            by_type = mass.reshape(*mass.shape[:3], -1, self.in_types).sum(dim=(1, 3))  # (N, C, B)
            shares.append(by_type / (by_type.sum(dim=1, keepdim=True) + em.MASS))
        after = torch.stack([step.activations for step in steps], dim=1)  # (N, R, P, C)
        maps = after.transpose(2, 3).reshape(*after.shape[:2], self.out_types, *self.grid[:2])
        return LayerTrace(torch.stack(shares, dim=1), maps)


class MatrixClassCapsules(nn.Module):
    """One capsule for each class; all cells share the transformations of their types.

    The scaled row and column of a child's receptive field are added to the first two numbers of its
    votes (coordinate addition; the paper uses the right-hand column of the 4x4 vote).
    """

    coordinates: Tensor

    def __init__(self, config: MatrixConfig) -> None:
        super().__init__()
        self.config = config
        self.types, grid = config.conv_caps[-1], config.grids[-1]
        self.cells = grid.rows * grid.columns
        self.weight = nn.Parameter(_transformations(self.types, config.num_classes))
        self.price = nn.Parameter(torch.zeros(config.num_classes))
        """beta_u, (K,), scaled: see `em.iterate`."""
        self.saving = nn.Parameter(torch.full((config.num_classes,), _ABSENT_LOGIT))
        """beta_a, (K,), scaled: see `em.iterate`."""
        rows, columns = (
            (torch.arange(count) * grid.stride_px + grid.offset_px + grid.field_px / 2) / pixels
            for count, pixels in ((grid.rows, config.height), (grid.columns, config.width))
        )
        coordinates = torch.zeros(self.cells, SIDE**2)
        coordinates[:, 0] = rows.repeat_interleave(grid.columns)
        coordinates[:, 1] = columns.repeat(grid.rows)
        self.register_buffer(
            "coordinates", coordinates[:, None], persistent=False
        )  # (cells, 1, 16)
        self.couplings = nn.Softmax(dim=-2)
        """Log scores to assignments, (N, K, I), of every iteration."""

    def forward(self, poses: Tensor, activations: Tensor) -> tuple[list[Parents], Tensor]:
        """Route poses (N, cells, D, 4, 4) with activations (N, cells, D).

        Returns:
            every iteration, with axes (N, K, ...), and the votes (N, K, I, 16). Input capsule
            i = type * cells + cell.
        """
        types, cells = self.types, self.cells
        rows = poses.permute(2, 0, 1, 3, 4).reshape(types, -1, SIDE)  # (D, N * cells * 4, 4)
        products = torch.matmul(rows, self.weight)
        classes = self.config.num_classes
        split = products.reshape(types, -1, cells, SIDE, classes, SIDE)
        votes = split.permute(1, 4, 0, 2, 3, 5).reshape(-1, classes, types, cells, SIDE**2)
        votes = (votes + self.coordinates[:, 0]).reshape(-1, classes, types * cells, SIDE**2)
        active = activations.transpose(1, 2).reshape(-1, 1, types * cells)
        steps = em.iterate(
            votes,
            active,
            beta_u=self.price,
            beta_a=self.saving,
            share=self.couplings,
            **_routing(self.config),
        )
        return list(steps), votes


class MatrixCapsNet(Network):
    """Convolution, primary capsules, convolutional capsules, class capsules, decoder (figure 1)."""

    config: MatrixConfig

    def __init__(self, config: MatrixConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config.channels, config.stem, batch_norm=config.batch_norm)
        initialise(self.stem)
        self.primary = PrimaryMatrixCapsules(config)
        self.conv_caps = nn.ModuleList(
            ConvCapsules(config, index) for index in range(len(config.conv_caps))
        )
        self.classes = MatrixClassCapsules(config)
        self.decoder = build_decoder(config)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of convolutional capsules, and the class capsules."""
        config = self.config
        names = [*(f"conv_caps_{index + 1}" for index in range(len(config.conv_caps))), "classes"]
        types = (config.primary_types, *config.conv_caps)
        return tuple(
            Layer(name, config.routing_iterations, count, *grid)
            for name, count, grid in zip(names, types, config.grids, strict=True)
        )

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Encode images (N, C, H, W) in [0, 1]."""
        poses, activations = self._primary(images)
        with torch.autocast(images.device.type, enabled=False):
            for layer in self.conv_caps:
                poses, activations = _last(layer(poses, activations))
            steps, _ = self.classes(poses, activations)
        return Encoding(steps[-1].activations, steps[-1].poses)

    def trace(self, images: Tensor) -> Trace[Tensor]:
        """Encode images (N, C, H, W) and keep every iteration of every layer."""
        poses, activations = self._primary(images)
        hidden: dict[str, LayerTrace[Tensor]] = {}
        for described, layer in zip(self.layers[:-1], self.conv_caps, strict=True):
            assert isinstance(layer, ConvCapsules)
            steps = layer(poses, activations)
            hidden[described.name] = layer.trace(steps, activations)
            poses, activations = _last(steps)
        steps, votes = self.classes(poses, activations)
        classes = ClassTrace(
            couplings=torch.stack([step.assignments for step in steps], dim=1),
            logits=torch.stack([step.scores for step in steps], dim=1),
            presence=torch.stack([step.activations for step in steps], dim=1),
            poses=torch.stack([step.poses for step in steps], dim=1),
            input_presence=activations.transpose(1, 2).flatten(1),
            votes=votes,
        )
        return Trace(classes, hidden)

    def _primary(self, images: Tensor) -> tuple[Tensor, Tensor]:
        self._check(images)
        poses, activations = self.primary(self.stem(images))
        return poses, activations


def _last(steps: list[Parents]) -> tuple[Tensor, Tensor]:
    """Poses (N, P, C, 4, 4) and activations (N, P, C) after the last iteration."""
    last = steps[-1]
    return last.poses.reshape(*last.poses.shape[:-1], SIDE, SIDE), last.activations


def _routing(config: MatrixConfig) -> dict[str, Any]:
    """Return the settings of routing that all layers share."""
    return {
        "inverse_temperature": config.inverse_temperature,
        "iterations": config.routing_iterations,
        "log_p_divisor": config.log_p_divisor,
    }


def _transformations(inputs: int, types: int) -> Tensor:
    """Near the identity, so that the first votes are the children's own poses."""
    noise = torch.randn(inputs, SIDE, types, SIDE) * 0.3
    return (noise + torch.eye(SIDE)[:, None, :]).reshape(inputs, SIDE, types * SIDE)


def _vote(poses: Tensor, weight: Tensor, types: int) -> Tensor:
    """V = M W: poses (N, P, I, 4, 4) and (I, 4, C * 4) to votes (N, P, C, I, 16)."""
    inputs, windows = poses.shape[2], poses.shape[1]
    rows = poses.permute(2, 0, 1, 3, 4).reshape(inputs, -1, SIDE)  # (I, N * P * 4, 4)
    products = torch.matmul(rows, weight).reshape(inputs, -1, windows, SIDE, types, SIDE)
    return products.permute(1, 2, 4, 0, 3, 5).reshape(-1, windows, types, inputs, SIDE**2)
