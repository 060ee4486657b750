"""Networks that share everything with self-attention capsules but what follows the convolutions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from model.capsnet import Encoding, Family, Network
from model.capsnet.attention import AttentionCapsNet, AttentionConfig
from model.capsnet.routing import by_agreement
from model.capsnet.squash import length
from model.capsnet.stem import Stem, geometry, initialise, out_channels


@dataclass(frozen=True)
class LinearConfig(AttentionConfig):
    """Sizes of the convolutions of self-attention capsules with a linear layer after them."""

    has_logits = True

    several: bool = False
    """Whether several classes may be present: a sigmoid for each in place of one softmax."""


class LinearHead(Network):
    """The convolutions with batch normalisation, and a linear layer: no capsules.

    Poses have no numbers.
    """

    config: LinearConfig

    def __init__(self, config: LinearConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config.channels, config.stem, batch_norm=True)
        initialise(self.stem)
        cells = geometry(config.height, config.width, config.stem)
        features = out_channels(config.channels, config.stem) * cells.rows * cells.columns
        self.classes = nn.Linear(features, config.num_classes)

    def forward(self, images: Tensor) -> Encoding:
        """Probabilities of images (N, C, H, W) in [0, 1]."""
        logits = self.logits(images)
        presence = logits.sigmoid() if self.config.several else logits.softmax(dim=1)
        return Encoding(presence, logits.unsqueeze(-1)[..., :0])

    def logits(self, images: Tensor) -> Tensor:
        """(N, K), before softmax or sigmoid, of images (N, C, H, W) in [0, 1]."""
        self._check(images)
        scores: Tensor = self.classes(self.stem(images).flatten(1)).float()
        return scores


@dataclass(frozen=True)
class AgreementConfig(AttentionConfig):
    """Sizes of self-attention capsules that are routed by agreement instead."""

    routing_iterations: int = 3


class AgreementHead(AttentionCapsNet):
    """The same convolutions, primary capsules and decoder; routing by agreement (Sabour 2017)."""

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


CONTROLS = (
    Family(
        "linear",
        "convolutions of self-attention capsules with a linear layer",
        "a control",
        LinearConfig,
        LinearHead,
        offers=frozenset(),
        presence="probability",
    ),
    Family(
        "agreement",
        "primary capsules of self-attention with routing by agreement",
        "a control",
        AgreementConfig,
        AgreementHead,
        offers=frozenset({"decode"}),
    ),
)
"""Families of experiments alone: no preset makes them and no bundle has them."""
