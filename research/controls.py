"""Networks that share everything with a capsule network but what follows the convolutions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from model.bundle.manifest import Offer
from model.capsnet import FAMILIES, Encoding, Family, Network, NetworkConfig
from model.capsnet.attention import AttentionCapsNet, AttentionConfig, DepthwiseCells
from model.capsnet.decoder import build_decoder
from model.capsnet.matrix import SIDE
from model.capsnet.routing import by_agreement
from model.capsnet.squash import length, squash, squash_exponential
from model.capsnet.stem import Conv, Stem, StemLayer, geometry, initialise, out_channels

_SUM_STD = 0.4
"""The standard deviation of a sum of votes before couplings, as in `model.capsnet.attention`."""
_ABSENT_LOGIT = -2.0
"""The activation logit of classes before training, as in `model.capsnet.matrix`."""
_SQUASHES = {"exponential": squash_exponential, "sabour": squash}


@dataclass(frozen=True)
class HeadConfig(NetworkConfig):
    """Convolutions, and what `Head` makes of them."""

    has_logits = True

    stem: tuple[StemLayer, ...] = AttentionConfig.stem
    batch_norm: bool = True
    norm_first: bool = False
    gather: Literal["flatten", "depthwise", "mean"] = "flatten"
    """All features; or one number for each channel: by weights of its own over positions, as
    depthwise primary capsules have, or the mean."""
    end: Literal["classes", "labels", "poses"] = "classes"
    """One class of several, by a softmax; labels that are present or not, by a sigmoid each; or
    poses, with capsules' squash and decoder."""
    squash: Literal["exponential", "sabour"] = "exponential"
    """Of poses: that of self-attention or of routing by agreement."""

    @property
    def multi_label(self) -> bool:
        """Whether each class has a sigmoid of its own, which the cross-entropy then takes."""
        return self.end == "labels"


@dataclass(frozen=True)
class PoseConfig(HeadConfig):
    """The same, with poses."""

    end: Literal["poses"] = "poses"


class Head(Network):
    """Convolutions and a linear layer, without couplings.

    With poses it has as many parameters as capsules have in their transformations, and the same
    loss and reconstruction: only the squash of the primary capsules and the couplings are missing.
    Elsewhere poses have no numbers. With the mean, images may have any size that the convolutions
    fit.
    """

    config: HeadConfig

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(
            config.channels,
            config.stem,
            batch_norm=config.batch_norm,
            norm_first=config.norm_first,
        )
        initialise(self.stem)
        cells = geometry(config.height, config.width, config.stem)
        count, poses = cells.rows * cells.columns, config.end == "poses"
        features = out_channels(config.channels, config.stem)
        depthwise = DepthwiseCells(features, count) if config.gather == "depthwise" else None
        self.depthwise = depthwise
        features *= count if config.gather == "flatten" else 1
        outputs = config.num_classes * (config.class_dim if poses else 1)
        self.classes = nn.Linear(features, outputs)
        if poses:
            # As short as sums of votes with uniform couplings: longer ones saturate the squash.
            std = _SUM_STD / (config.num_classes * math.sqrt(features))
            nn.init.normal_(self.classes.weight, std=std)
            nn.init.zeros_(self.classes.bias)
            self.decoder = build_decoder(config)

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Encode images (N, C, H, W) in [0, 1]."""
        config = self.config
        if config.end == "poses":
            features = self._features(images).float()
            with torch.autocast(features.device.type, enabled=False):
                sums = self.classes(features).unflatten(1, (-1, config.class_dim))
                poses = _SQUASHES[config.squash](sums)
                return Encoding(length(poses), poses)
        logits = self.logits(images)
        presence = logits.sigmoid() if config.multi_label else logits.softmax(dim=1)
        return Encoding(presence, logits.unsqueeze(-1)[..., :0])

    def logits(self, images: Tensor) -> Tensor:
        """(N, K), before softmax or sigmoid, of images (N, C, H, W) in [0, 1]."""
        scores: Tensor = self.classes(self._features(images)).float()
        return scores

    def _features(self, images: Tensor) -> Tensor:
        maps: Tensor = self.stem(images)
        if self.depthwise is not None:
            cells: Tensor = self.depthwise(maps.flatten(2))
            return cells.flatten(1)
        return maps.flatten(1) if self.config.gather == "flatten" else maps.mean(dim=(2, 3))


@dataclass(frozen=True)
class ReroutedConfig(AttentionConfig):
    """Sizes of self-attention capsules whose votes are weighted in another way."""

    couplings: Literal["agreement", "uniform"] = "agreement"
    """Routing by agreement, with its own squash; or 1 / K for all votes, with that of
    self-attention. Both go without the coupling bias B."""
    routing_iterations: int = 3
    """Of agreement."""


class ReroutedCapsNet(AttentionCapsNet):
    """Convolutions and capsules of self-attention; other couplings."""

    config: ReroutedConfig

    def __init__(self, config: ReroutedConfig) -> None:
        super().__init__(config)
        self.prior.requires_grad = False  # has no part

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Encode images (N, C, H, W) in [0, 1]."""
        capsules = self.primary_capsules(images)
        with torch.autocast(capsules.device.type, enabled=False):
            votes = self.votes.factored(capsules) if self.training else self.votes(capsules)
            if self.config.couplings == "agreement":
                poses = by_agreement.Routing(self.config.routing_iterations)(votes)
            else:
                poses = squash_exponential(by_agreement.weigh(votes, None))
            return Encoding(length(poses), poses)


@dataclass(frozen=True)
class PlainMatrixConfig(NetworkConfig):
    """Sizes of convolutions in place of matrix capsules."""

    stem: tuple[StemLayer, ...] = (Conv(32, 5), Conv(64, 3, 2))
    primary_channels: int = 68
    """As many as primary capsules have numbers: 17 for each type."""
    conv_channels: tuple[int, ...] = (16, 16)
    """Of the 3x3 convolutions, the first with stride 2."""


class PlainMatrixNet(Network):
    """Convolutions in place of the layers of matrix capsules, poses and activations at the end.

    Each position of the last layer gives a pose of 16 numbers and a logit for each class by one
    linear layer; they are averaged over positions.
    """

    config: PlainMatrixConfig

    def __init__(self, config: PlainMatrixConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config.channels, config.stem, batch_norm=True)
        initialise(self.stem)
        sizes = (config.primary_channels, *config.conv_channels)
        channels = out_channels(config.channels, config.stem)
        layers: list[nn.Module] = []
        for index, size in enumerate(sizes):
            kernel, stride = (3, 2 if index == 1 else 1) if index else (1, 1)
            layers += [nn.Conv2d(channels, size, kernel, stride), nn.BatchNorm2d(size), nn.ReLU()]
            channels = size
        self.layers_between = nn.Sequential(*layers)
        self.classes = nn.Conv2d(channels, config.num_classes * (SIDE**2 + 1), 1)
        assert self.classes.bias is not None
        nn.init.constant_(self.classes.bias, 0.0)
        self.classes.bias.data[:: SIDE**2 + 1] = _ABSENT_LOGIT
        self.decoder = build_decoder(config)

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Encode images (N, C, H, W) in [0, 1]."""
        self._check(images)
        maps = self.classes(self.layers_between(self.stem(images))).float()
        numbers = maps.mean(dim=(2, 3)).unflatten(1, (self.config.num_classes, -1))
        return Encoding(numbers[..., 0].sigmoid(), numbers[..., 1:])


def register() -> None:
    """Make the controls families, for as long as the program runs: no preset or bundle has them."""
    decodes: frozenset[Offer] = frozenset({"decode"})
    for name, config, network, offers in (
        ("head", HeadConfig, Head, frozenset[Offer]()),
        ("poses", PoseConfig, Head, decodes),
        ("rerouted", ReroutedConfig, ReroutedCapsNet, decodes),
        ("plain-matrix", PlainMatrixConfig, PlainMatrixNet, decodes),
    ):
        FAMILIES[name] = Family(name, name, "a control", config, network, offers=offers)
