"""Networks that share everything with a capsule network except what follows the convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from model.bundle.manifest import Offer
from model.capsnet import FAMILIES, Encoding, Family, Network
from model.capsnet.attention import AttentionCapsNet, AttentionConfig, DepthwiseCells
from model.capsnet.decoder import build_decoder
from model.capsnet.routing import SelfAttention, Step, weigh
from model.capsnet.squash import length, squash, squash_exponential
from model.capsnet.stem import Stem, StemConfig, StemLayer

_SUM_STD = 0.4
"""The standard deviation of a sum of votes before couplings, as in `model.capsnet.attention`."""
_SQUASHES = {"exponential": squash_exponential, "sabour": squash}


@dataclass(frozen=True)
class HeadConfig(StemConfig):
    """Convolutions, and a linear layer to classes."""

    has_logits = True

    stem: tuple[StemLayer, ...] = AttentionConfig.stem
    batch_norm: bool = True
    norm_first: bool = False
    gather: Literal["flatten", "depthwise", "mean"] = "flatten"
    """All features; or one number for each channel: by weights of its own over positions, as
    depthwise primary capsules have, or the mean."""


@dataclass(frozen=True)
class PoseConfig(HeadConfig):
    """The same with a linear layer to poses, with capsules' squash and decoder."""

    has_logits = False

    squash: Literal["exponential", "sabour"] = "exponential"
    """Of self-attention, or of routing by agreement."""


class Head(Network):
    """Convolutions and a linear layer to classes, whose probabilities a softmax gives."""

    config: HeadConfig

    def __init__(self, config: HeadConfig, *, numbers: int = 1) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(
            config.channels,
            config.stem,
            batch_norm=config.batch_norm,
            norm_first=config.norm_first,
        )
        count = config.cells.rows * config.cells.columns
        features = config.features
        depthwise = DepthwiseCells(features, count) if config.gather == "depthwise" else None
        self.depthwise = depthwise
        features *= count if config.gather == "flatten" else 1
        self.classes = nn.Linear(features, config.num_classes * numbers)

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Encode images (N, C, H, W) in [0, 1]; poses have no numbers."""
        logits = self.logits(images)
        return Encoding(logits.softmax(dim=1), logits.unsqueeze(-1)[..., :0])

    def logits(self, images: Tensor) -> Tensor:
        """(N, K), before the softmax, of images (N, C, H, W) in [0, 1]."""
        scores: Tensor = self.classes(self._features(images)).float()
        return scores

    def _features(self, images: Tensor) -> Tensor:
        maps: Tensor = self.stem(images)
        if self.depthwise is not None:
            cells: Tensor = self.depthwise(maps.flatten(2))
            return cells.flatten(1)
        return maps.flatten(1) if self.config.gather == "flatten" else maps.mean(dim=(2, 3))


class PoseHead(Head):
    """The same with poses, and as many parameters as capsules have in their transformations.

    Loss and reconstruction are those of capsules: only the squash of the primary capsules and the
    couplings are missing.
    """

    config: PoseConfig

    def __init__(self, config: PoseConfig) -> None:
        super().__init__(config, numbers=config.class_dim)
        # As short as sums of votes with uniform couplings: longer ones saturate the squash.
        std = _SUM_STD / (config.num_classes * math.sqrt(self.classes.in_features))
        nn.init.normal_(self.classes.weight, std=std)
        nn.init.zeros_(self.classes.bias)
        self.decoder = build_decoder(config)

    def forward(self, images: Tensor) -> Encoding[Tensor]:
        """Encode images (N, C, H, W) in [0, 1]."""
        features = self._features(images).float()
        with torch.autocast(features.device.type, enabled=False):
            sums = self.classes(features).unflatten(1, (-1, self.config.class_dim))
            poses = _SQUASHES[self.config.squash](sums)
            return Encoding(length(poses), poses)


class UniformRouting(SelfAttention):
    """All votes weigh the same, 1 / K."""

    def iterate(self, votes: Tensor, bias: Tensor | None) -> Iterator[Step]:
        """Route votes (N, K, I, D) once. The bias has no part."""
        del bias
        yield Step(None, None, squash_exponential(weigh(votes, None)))


@dataclass(frozen=True)
class UniformConfig(AttentionConfig):
    """Sizes of self-attention capsules whose votes all weigh the same."""


class UniformCapsNet(AttentionCapsNet):
    """Convolutions and capsules of self-attention, without couplings and their bias B."""

    def __init__(self, config: UniformConfig) -> None:
        super().__init__(config)
        self.prior.requires_grad = False  # has no part
        self.routing = UniformRouting()


def register() -> None:
    """Make the controls families, for as long as the program runs: no preset or bundle has them."""
    decodes: frozenset[Offer] = frozenset({"decode"})
    for name, config, network, offers in (
        ("head", HeadConfig, Head, frozenset[Offer]()),
        ("poses", PoseConfig, PoseHead, decodes),
        ("uniform", UniformConfig, UniformCapsNet, decodes),
    ):
        FAMILIES[name] = Family(name, name, "a control", config, network, offers=offers)
