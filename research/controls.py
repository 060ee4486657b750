"""Networks that share everything with a capsule network but what follows the convolutions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from model.bundle.manifest import Offer
from model.capsnet import FAMILIES, Encoding, Family, Network, NetworkConfig
from model.capsnet.attention import AttentionCapsNet, AttentionConfig
from model.capsnet.decoder import Decoder
from model.capsnet.routing import by_agreement
from model.capsnet.squash import length, squash_exponential
from model.capsnet.stem import Stem, StemLayer, geometry, initialise, out_channels


@dataclass(frozen=True)
class HeadConfig(NetworkConfig):
    """Convolutions, and what `Head` makes of them."""

    has_logits = True

    stem: tuple[StemLayer, ...] = AttentionConfig.stem
    batch_norm: bool = True
    end: Literal["classes", "labels", "pooled", "poses"] = "classes"
    """One class or several labels of all features; labels of each channel's mean, by a hidden layer
    of 128 (Su 2018); or poses, with capsules' squash and decoder."""


@dataclass(frozen=True)
class PoseConfig(HeadConfig):
    """The same, with poses."""

    end: Literal["poses"] = "poses"


class Head(Network):
    """Convolutions and a linear layer, without couplings.

    With poses it has as many parameters as capsules have in their transformations, and the same
    loss and reconstruction: only the squash of the primary capsules and the couplings are missing.
    Elsewhere poses have no numbers. Pooled, images may have any size that the convolutions fit.
    """

    config: HeadConfig

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config.channels, config.stem, batch_norm=config.batch_norm)
        initialise(self.stem)
        cells = geometry(config.height, config.width, config.stem)
        channels, poses = out_channels(config.channels, config.stem), config.end == "poses"
        features = channels * cells.rows * cells.columns
        outputs = config.num_classes * (config.class_dim if poses else 1)
        self.classes: nn.Module = nn.Linear(features, outputs)
        if config.end == "pooled":
            self.classes = nn.Sequential(
                nn.Linear(channels, 128), nn.ReLU(), nn.Linear(128, outputs)
            )
        if poses:
            self.decoder = Decoder(config)

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Encode images (N, C, H, W) in [0, 1]."""
        if self.config.end == "poses":
            features = self._features(images).float()
            with torch.autocast(features.device.type, enabled=False):
                sums = self.classes(features).unflatten(1, (-1, self.config.class_dim))
                poses = squash_exponential(sums)
                return Encoding(length(poses), poses)
        logits = self.logits(images)
        one = self.config.end == "classes"
        presence = logits.softmax(dim=1) if one else logits.sigmoid()
        return Encoding(presence, logits.unsqueeze(-1)[..., :0])

    def logits(self, images: Tensor) -> Tensor:
        """(N, K), before softmax or sigmoid, of images (N, C, H, W) in [0, 1]."""
        scores: Tensor = self.classes(self._features(images)).float()
        return scores

    def _features(self, images: Tensor) -> Tensor:
        maps: Tensor = self.stem(images)
        return maps.mean(dim=(2, 3)) if self.config.end == "pooled" else maps.flatten(1)


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

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Encode images (N, C, H, W) in [0, 1]."""
        capsules = self.primary_capsules(images)
        with torch.autocast(capsules.device.type, enabled=False):
            votes = self.votes.factored(capsules) if self.training else self.votes(capsules)
            poses = by_agreement.Routing(self.config.routing_iterations)(votes)
            return Encoding(length(poses), poses)


def register() -> None:
    """Make the controls families, for as long as the program runs: no preset or bundle has them."""
    decodes: frozenset[Offer] = frozenset({"decode"})
    for name, config, network, offers in (
        ("head", HeadConfig, Head, frozenset[Offer]()),
        ("poses", PoseConfig, Head, decodes),
        ("agreement", AgreementConfig, AgreementHead, decodes),
    ):
        FAMILIES[name] = Family(name, name, "a control", config, network, offers=offers)
