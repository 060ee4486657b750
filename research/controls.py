"""Networks that share everything with a capsule network but what follows the convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from model.capsnet import FAMILIES, Encoding, Family, Network, NetworkConfig
from model.capsnet.attention import AttentionCapsNet, AttentionConfig
from model.capsnet.decoder import Decoder
from model.capsnet.routing import by_agreement
from model.capsnet.shared import SharedConfig
from model.capsnet.squash import length, squash_exponential
from model.capsnet.stem import Conv, Stem, geometry, initialise


@dataclass(frozen=True)
class LinearConfig(NetworkConfig):
    """Convolutions and what `LinearHead` makes of them."""

    has_logits = True

    stem: tuple[Conv, ...] = AttentionConfig.stem
    batch_norm: bool = True
    several: bool = False
    """Whether several classes may be present: a sigmoid for each in place of one softmax."""

    @property
    def features(self) -> int:
        """Numbers after the convolutions."""
        cells = geometry(self.height, self.width, self.stem)
        return self.stem[-1].channels * cells.rows * cells.columns


class LinearHead(Network):
    """Convolutions and a linear layer: no capsules. Poses have no numbers."""

    config: LinearConfig

    def __init__(self, config: LinearConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config.channels, config.stem, batch_norm=config.batch_norm)
        initialise(self.stem)
        self.classes = nn.Linear(config.features, self.outputs)

    @property
    def outputs(self) -> int:
        """Numbers that the linear layer gives."""
        return self.config.num_classes

    def forward(self, images: Tensor) -> Encoding:
        """Probabilities of images (N, C, H, W) in [0, 1]."""
        logits = self.logits(images)
        presence = logits.sigmoid() if self.config.several else logits.softmax(dim=1)
        return Encoding(presence, logits.unsqueeze(-1)[..., :0])

    def logits(self, images: Tensor) -> Tensor:
        """What the linear layer gives, (N, K), of images (N, C, H, W) in [0, 1]."""
        self._check(images)
        scores: Tensor = self.classes(self.stem(images).flatten(1)).float()
        return scores


@dataclass(frozen=True)
class PoseConfig(LinearConfig):
    """Convolutions and what `PoseHead` makes of them."""

    has_logits = False


class PoseHead(LinearHead):
    """Convolutions, a linear layer to poses, squash and decoder.

    As many parameters as capsules have in their transformations, and the same loss and
    reconstruction: only the squash of the primary capsules and the couplings are missing.
    """

    def __init__(self, config: PoseConfig) -> None:
        super().__init__(config)
        self.decoder = Decoder(config)

    @property
    def outputs(self) -> int:
        """K D."""
        return self.config.num_classes * self.config.class_dim

    def forward(self, images: Tensor) -> Encoding:
        """Encode images (N, C, H, W) in [0, 1]."""
        features = self.stem(images).flatten(1).float()
        with torch.autocast(features.device.type, enabled=False):
            sums = self.classes(features).unflatten(1, (-1, self.config.class_dim))
            poses = squash_exponential(sums)
            return Encoding(length(poses), poses)


@dataclass(frozen=True)
class AgreementConfig(AttentionConfig):
    """Sizes of self-attention capsules that are routed by agreement instead."""

    routing_iterations: int = 3


class AgreementHead(AttentionCapsNet):
    """Convolutions and capsules of self-attention; routing by agreement (Sabour 2017)."""

    config: AgreementConfig

    def __init__(self, config: AgreementConfig) -> None:
        super().__init__(config)
        self.prior.requires_grad = False  # has no part

    def forward(self, images: Tensor) -> Encoding:
        """Encode images (N, C, H, W) in [0, 1]."""
        capsules = self._primary(images)
        with torch.autocast(capsules.device.type, enabled=False):
            votes = self.votes.factored(capsules) if self.training else self.votes(capsules)
            poses = by_agreement.route(votes, iterations=self.config.routing_iterations)
            return Encoding(length(poses), poses)


@dataclass(frozen=True)
class PooledConfig(NetworkConfig):
    """Sizes of the CNN that Su compares shared-weight capsules with."""

    stem: tuple[Conv, ...] = SharedConfig.stem
    hidden: int = 128


class PooledCnn(Network):
    """The convolutions of shared-weight capsules, their mean over all cells, a sigmoid a class.

    Images may have any size that the convolutions fit. Poses have no numbers.
    """

    config: PooledConfig

    def __init__(self, config: PooledConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config.channels, config.stem)
        initialise(self.stem)
        self.classes = nn.Sequential(
            nn.Linear(config.stem[-1].channels, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, config.num_classes),
        )

    def forward(self, images: Tensor) -> Encoding:
        """Encode images (N, C, H, W) in [0, 1]."""
        presence = self.classes(self.stem(images).mean(dim=(2, 3))).float().sigmoid()
        return Encoding(presence, presence.unsqueeze(-1)[..., :0])


def register() -> None:
    """Make the controls families, for as long as the program runs: no preset or bundle has them."""
    plain: dict[str, Any] = {"offers": frozenset(), "presence": "probability"}
    drawn: dict[str, Any] = {"offers": frozenset({"decode"})}
    for family in (
        Family(
            "linear", "a linear layer", "a control", config=LinearConfig, build=LinearHead, **plain
        ),
        Family(
            "poses",
            "a linear layer to poses",
            "a control",
            config=PoseConfig,
            build=PoseHead,
            **drawn,
        ),
        Family(
            "agreement",
            "self-attention's capsules, routing by agreement",
            "a control",
            config=AgreementConfig,
            build=AgreementHead,
            **drawn,
        ),
        Family(
            "pooled",
            "global average pooling",
            "a control",
            config=PooledConfig,
            build=PooledCnn,
            **plain,
        ),
    ):
        FAMILIES[family.name] = family
