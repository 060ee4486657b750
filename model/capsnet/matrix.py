"""Hinton, Sabour and Frosst, "Matrix capsules with EM routing" (2018), from top to bottom.

A capsule has a 4x4 pose matrix and an activation. The class capsules' poses are given out as
D = 16 numbers, row by row.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from model.bundle import Layer
from model.capsnet import em
from model.capsnet.decoder import build_decoder
from model.capsnet.em import Parents, Windows
from model.capsnet.network import STRICT, Network, Positive, Size
from model.capsnet.stem import Conv, Geometry, Stem, StemConfig, StemLayer
from model.outputs import ClassTrace, Encoding, LayerTrace, Trace

SIDE = 4
"""A pose matrix has 4 rows and columns."""
_ABSENT = -1e30
_ABSENT_LOGIT = -2.0
"""The activation logit of a class without votes before training: absent, but able to learn."""


@dataclass(frozen=True, config=STRICT)
class MatrixConfig(StemConfig):
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
        grids = [self.cells]
        for index in range(len(self.conv_caps)):
            grids.append(grids[-1].then(3, 1 if index else 2))
        return tuple(grids)


class PrimaryMatrixCapsules(nn.Module):
    """A 1x1 convolution to B poses and B activations in each cell."""

    def __init__(self, config: MatrixConfig) -> None:
        super().__init__()
        self.types = config.primary_types
        sizes = SIDE**2 * self.types, self.types
        self.conv = nn.Conv2d(config.features, sum(sizes), 1)
        self.norm = nn.BatchNorm2d(sum(sizes)) if config.batch_norm else None
        nn.init.trunc_normal_(self.conv.weight, std=0.5 / config.features**0.5)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map features (N, A, h, w) to poses (N, cells, B, 4, 4) and activations (N, cells, B)."""
        maps = self.conv(features)
        if self.norm is not None:
            maps = self.norm(maps)
        cells = maps.flatten(2).transpose(1, 2).float()  # (N, cells, 17 B)
        poses, activations = cells.split((SIDE**2 * self.types, self.types), dim=2)
        shape = (-1, cells.shape[1], self.types, SIDE, SIDE)
        return poses.reshape(shape), activations.sigmoid()


class EmCapsules(nn.Module):
    """Capsules that EM routing fits to the votes of their children.

    Args:
        children: I, the number of children with transformations of their own.
        parents: C, the number of types of capsules.
        beta_a: its start, in logits.
    """

    def __init__(
        self, config: MatrixConfig, children: int, parents: int, *, beta_a: float = 0.0
    ) -> None:
        super().__init__()
        self.config = config
        # Near the identity, so that the first votes are the children's own poses.
        near_identity = torch.randn(children, SIDE, parents, SIDE) * 0.3 + torch.eye(SIDE)[:, None]
        self.weight = nn.Parameter(near_identity.flatten(2))
        """W, (I, 4, C * 4): the transformation of each child for each parent."""
        self.price = nn.Parameter(torch.zeros(parents))
        """beta_u, (C,), scaled: see `em.iterate`. Stored weights have this name."""
        self.saving = nn.Parameter(torch.full((parents,), beta_a))
        """beta_a, (C,), scaled: see `em.iterate`. Stored weights have this name."""

    def vote(self, poses: Tensor) -> Tensor:
        """V = M W: poses (N, P, I, 4, 4) of the children in P windows to votes (N, P, C, I, 16)."""
        windows, children, parents = poses.shape[1], poses.shape[2], len(self.price)
        rows = poses.permute(2, 0, 1, 3, 4).reshape(children, -1, SIDE)  # (I, N * P * 4, 4)
        products = torch.matmul(rows, self.weight)
        split = products.reshape(children, -1, windows, SIDE, parents, SIDE)
        return split.permute(1, 2, 4, 0, 3, 5).reshape(-1, windows, parents, children, SIDE**2)

    def route(self, votes: Tensor, activations: Tensor) -> list[Parents]:
        """Return every iteration. Votes are (..., C, I, 16), children's activations (..., 1, I)."""
        return list(
            em.iterate(
                votes,
                activations,
                beta_u=self.price,
                beta_a=self.saving,
                inverse_temperature=self.config.inverse_temperature,
                share=self.share,
                iterations=self.config.routing_iterations,
                log_p_divisor=self.config.log_p_divisor,
            )
        )

    def share(self, scores: Tensor) -> Tensor:
        """Return the assignments of children, of the shape (..., C, I) of their log scores."""
        raise NotImplementedError


class ConvCapsules(EmCapsules):
    """Convolutional capsules: those in a window vote for the parents there (paper, section 4)."""

    cells: Tensor
    slots: Tensor

    def __init__(self, config: MatrixConfig, index: int) -> None:
        before, grid = config.grids[index : index + 2]
        in_types, out_types = (config.primary_types, *config.conv_caps)[index : index + 2]
        windows = Windows(before.rows, before.columns, kernel=3, stride=1 if index else 2)
        super().__init__(config, windows.cells.shape[1] * in_types, out_types)
        self.grid, self.in_types, self.out_types = grid, in_types, out_types
        for name, indices in (("cells", windows.cells), ("slots", windows.slots)):
            self.register_buffer(name, torch.tensor(indices), persistent=False)

    def forward(self, poses: Tensor, activations: Tensor) -> list[Parents]:
        """Route poses (N, cells, B, 4, 4) with activations (N, cells, B). Return every iteration.

        The axes of what is returned are (N, P, C, ...), P windows.
        """
        votes = self.vote(self.gather(poses))
        return self.route(votes, self.gather(activations).unsqueeze(2))

    def gather(self, numbers: Tensor) -> Tensor:
        """The numbers (N, cells, B, ...) of the children in each window: (N, P, I, ...)."""
        windows, children = len(self.cells), self.cells.shape[1] * self.in_types
        gathered = numbers.index_select(1, self.cells.flatten())
        return gathered.reshape(-1, windows, children, *numbers.shape[3:])

    def share(self, scores: Tensor) -> Tensor:
        """Return assignments (N, P, C, I) of children among parents of all types *and* windows."""
        log_mass = scores.logsumexp(dim=2)  # (N, P, I): over types
        flat = log_mass.reshape(-1, self.cells.numel(), self.in_types)
        absent = flat[:, :1] * 0 + _ABSENT
        slots = torch.cat((flat, absent), dim=1).index_select(1, self.slots.flatten())
        by_cell = slots.reshape(-1, *self.slots.shape, self.in_types)
        total = by_cell.logsumexp(dim=2)  # (N, cells, B): over windows
        return (scores - self.gather(total).unsqueeze(2)).exp()

    def trace(self, steps: list[Parents], activations: Tensor) -> LayerTrace[Tensor]:
        """Return couplings from type to type, and the parents' activations, by iteration."""
        active = self.gather(activations).unsqueeze(2)
        shares = []
        for step in steps:
            mass = step.assignments * active  # (N, P, C, I)
            by_type = mass.reshape(*mass.shape[:3], -1, self.in_types).sum(dim=(1, 3))  # (N, C, B)
            shares.append(by_type / (by_type.sum(dim=1, keepdim=True) + em.MASS))
        after = torch.stack([step.activations for step in steps], dim=1)  # (N, R, P, C)
        maps = after.transpose(2, 3).reshape(*after.shape[:2], self.out_types, *self.grid[:2])
        return LayerTrace(torch.stack(shares, dim=1), maps)


class MatrixClassCapsules(EmCapsules):
    """One capsule for each class; all cells share the transformations of their types.

    The scaled row and column of a child's receptive field are added to the first two numbers of its
    votes (coordinate addition; the paper uses the right-hand column of the 4x4 vote).
    """

    coordinates: Tensor

    def __init__(self, config: MatrixConfig) -> None:
        types, grid = config.conv_caps[-1], config.grids[-1]
        super().__init__(config, types, config.num_classes, beta_a=_ABSENT_LOGIT)
        self.types = types
        rows, columns = (
            (torch.arange(count) * grid.stride_px + grid.offset_px + grid.field_px / 2) / pixels
            for count, pixels in ((grid.rows, config.height), (grid.columns, config.width))
        )
        coordinates = torch.zeros(grid.rows * grid.columns, SIDE**2)
        coordinates[:, 0] = rows.repeat_interleave(grid.columns)
        coordinates[:, 1] = columns.repeat(grid.rows)
        self.register_buffer("coordinates", coordinates, persistent=False)
        self.couplings = nn.Softmax(dim=-2)
        """Log scores to assignments, (N, K, I), of every iteration."""

    def forward(self, poses: Tensor, activations: Tensor) -> tuple[list[Parents], Tensor]:
        """Route poses (N, cells, D, 4, 4) with activations (N, cells, D).

        Returns:
            every iteration, with axes (N, K, ...), and the votes (N, K, I, 16). Input capsule
            i = type * cells + cell.
        """
        classes, inputs = len(self.price), self.types * len(self.coordinates)
        by_type = self.vote(poses).permute(0, 2, 3, 1, 4)  # (N, K, D, cells, 16)
        votes = (by_type + self.coordinates).reshape(-1, classes, inputs, SIDE**2)
        return self.route(votes, activations.transpose(1, 2).reshape(-1, 1, inputs)), votes

    def share(self, scores: Tensor) -> Tensor:
        """Return assignments (N, K, I) of children among all classes."""
        assignments: Tensor = self.couplings(scores)
        return assignments


class MatrixCapsNet(Network):
    """Convolution, primary capsules, convolutional capsules, class capsules, decoder (figure 1)."""

    config: MatrixConfig

    def __init__(self, config: MatrixConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config.channels, config.stem, batch_norm=config.batch_norm)
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
        couplings, logits, presence, mean_poses = (
            torch.stack(tensors, dim=1) for tensors in zip(*steps, strict=True)
        )
        input_presence = activations.transpose(1, 2).flatten(1)
        classes = ClassTrace(couplings, logits, presence, mean_poses, input_presence, votes)
        return Trace(classes, hidden)

    def _primary(self, images: Tensor) -> tuple[Tensor, Tensor]:
        self._check(images)
        poses, activations = self.primary(self.stem(images))
        return poses, activations


def _last(steps: list[Parents]) -> tuple[Tensor, Tensor]:
    """Poses (N, P, C, 4, 4) and activations (N, P, C) after the last iteration."""
    last = steps[-1]
    return last.poses.reshape(*last.poses.shape[:-1], SIDE, SIDE), last.activations
