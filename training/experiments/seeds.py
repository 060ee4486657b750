"""Experiments of the talks and notes behind this project: what routing does, alone and repeated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from model.capsnet import FAMILIES, Encoding, Family, Network, NetworkConfig
from model.capsnet.shared import SharedConfig
from model.capsnet.stem import Stem, StemLayer, initialise, out_channels
from training.data.datasets import Examples
from training.data.pairs import PairDraw
from training.experiments.controls import CONTROLS
from training.experiments.declare import CLOTHES, DIGITS, Column, Experiment, Row, count_of
from training.recipes import PRESETS

SIDE_BY_SIDE = "side by side"
_SEED = 2018


@dataclass(frozen=True)
class PooledConfig(NetworkConfig):
    """Sizes of the CNN that Su compares shared-weight capsules with."""

    stem: tuple[StemLayer, ...] = SharedConfig.stem
    hidden: int = 128


class PooledCnn(Network):
    """The convolutions of shared-weight capsules, their mean over all cells, and a sigmoid a class.

    Images may have any size that the convolutions fit. Poses have no numbers.
    """

    config: PooledConfig

    def __init__(self, config: PooledConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = Stem(config.channels, config.stem)
        initialise(self.stem)
        self.classes = nn.Sequential(
            nn.Linear(out_channels(config.channels, config.stem), config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, config.num_classes),
        )

    def forward(self, images: Tensor) -> Encoding:
        """Encode images (N, C, H, W) in [0, 1]."""
        presence = self.classes(self.stem(images).mean(dim=(2, 3))).float().sigmoid()
        return Encoding(presence, presence.unsqueeze(-1)[..., :0])


_POOLED = Family(
    "pooled",
    "convolutional network with global average pooling",
    'Su, "Another new Capsule", 2018',
    PooledConfig,
    PooledCnn,
    offers=frozenset(),
    presence="probability",
)

_SINGLES = replace(
    DIGITS,
    network=SharedConfig(),
    absent_weight=0.25,
    reconstruction_weight=0,
    warmup_steps=300,
    average_decay=0.999,
)
_MATRIX: Any = replace(PRESETS["mnist-matrix"], spread_steps=100, warmup_steps=100)
_FROZEN = {
    "votes": ("W random, the rest trained", ("votes",)),
    "nothing": ("all trained", ()),
    "encoder": ("only the decoder trained", ("stem", "primary", "votes")),
}


def _by_iterations(name: str, recipe: Any, **row: Any) -> tuple[Row, ...]:
    """One network with 1, 2 and 3 iterations of routing."""
    return tuple(
        Row(
            f"{name}-{count}",
            count_of(count, "iteration"),
            replace(recipe, network=replace(recipe.network, routing_iterations=count)),
            **row,
        )
        for count in (1, 2, 3)
    )


_BRIEF: dict[str, Any] = {"images": 30_000, "curve_every": 3_000}
_TWO: dict[str, Any] = {"images": 120_000, "tests": ("plain", SIDE_BY_SIDE), "curve_every": 20_000}

SEEDS = (
    Experiment(
        "frozen",
        "Routing against back-propagation",
        "The network of `mnist-compact` on Fashion-MNIST; W are the transformation matrices. The "
        "figure shows reconstructions of one image, with each pose dimension (rows) moved from "
        "-0.25 to 0.25 (columns).",
        tuple(
            Row(
                f"frozen-{name}",
                title,
                replace(CLOTHES, frozen=frozen),
                90_000,
                curve_every=15_000,
            )
            for name, (title, frozen) in _FROZEN.items()
        ),
        compared=(("frozen-votes", "frozen-nothing"),),
    ),
    Experiment(
        "side-by-side",
        "Trained on single digits, shown two",
        "Shared-weight capsules with 1 to 3 iterations of routing, and a CNN with the same "
        "convolutions and global average pooling. A pair is two test digits of different classes "
        "side by side (28x56 pixels). It is right if both are the top two classes.",
        (
            *_by_iterations("two", _SINGLES, **_TWO),
            Row(
                "two-pooling",
                "CNN with pooling",
                replace(_SINGLES, network=PooledConfig()),
                **_TWO,
            ),
        ),
        (
            Column("plain", "single digits wrong, %"),
            Column(SIDE_BY_SIDE, "both of two right, %", right=True),
        ),
        compared=(("two-3", "two-1"), ("two-3", "two-pooling")),
    ),
    Experiment(
        "em-iterations",
        "EM routing by iterations",
        "The network of `mnist-matrix` on MNIST, seen briefly. The last lambda is the same for any "
        "number of iterations. The sum of ln p over a pose, as published, makes the third E-step "
        "too sharp; its mean does not.",
        (
            *_by_iterations("em-mean", _MATRIX, **_BRIEF),
            Row(
                "em-sum-3",
                "3 iterations, ln p summed as published",
                replace(_MATRIX, network=replace(_MATRIX.network, vote_temperature=1.0)),
                **_BRIEF,
            ),
        ),
        compared=(("em-mean-3", "em-mean-1"), ("em-mean-3", "em-sum-3")),
    ),
)


def register() -> None:
    """Make the networks of experiments families, for as long as the program runs."""
    for family in (_POOLED, *CONTROLS):
        FAMILIES[family.name] = family


def side_by_side(digits: Examples) -> Examples:
    """As many pairs of digits of different classes, side by side, as there are digits.

    Random numbers are outputs of PCG64, so the same digits give the same pairs everywhere.

    Args:
        digits: images (N, C, H, W).

    Returns:
        images (N, C, H, 2 W) and labels (N, 2).
    """
    pairs = PairDraw(digits.labels, shift_px=0).draw(len(digits.labels), _SEED)[:, :2]
    left, right = (digits.images[column] for column in pairs.T)
    return Examples(np.concatenate((left, right), axis=3), digits.labels[pairs])
