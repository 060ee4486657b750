"""What a row and a table are, and how networks are changed into their controls."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

from model.capsnet import NetworkConfig
from model.capsnet.attention import AttentionConfig
from model.capsnet.baseline import BaselineConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.matrix import MatrixConfig
from model.capsnet.shared import SharedConfig
from model.capsnet.stem import Conv
from training.recipes import Recipe


@dataclass(frozen=True)
class Row:
    """One network that is trained with a fixed number of images and tested once for each seed."""

    name: str
    title: str
    recipe: Recipe
    """`make_plan` replaces its name and epochs."""
    images: int
    """The budget: images seen in training."""
    seeds: tuple[int, ...] = (1,)
    """The seeds that are run unless others are named."""
    training_images: int | None = None
    """Distinct images to learn from, as many of each class, chosen by the seed; None for all."""
    split: Literal["test", "validation"] = "test"
    """What is tested on; `validation` is the last training images, which are then held out."""


class Compared(NamedTuple):
    """Two rows whose difference is stated; the first has capsules, or more of their routing."""

    first: str
    second: str


class Table(NamedTuple):
    """Rows, and what is stated of them."""

    rows: tuple[Row, ...]
    compared: tuple[Compared, ...] = ()


def plain(recipe: Recipe, network: NetworkConfig) -> Recipe:
    """A recipe for a network without poses: cross-entropy, and no reconstruction."""
    return replace(recipe, network=network, loss="cross-entropy", mse_weight=0)


def sizes(recipe: Recipe, config: type[NetworkConfig], **changes: Any) -> Any:
    """Another network with the sizes that a recipe's network has."""
    kept = {one.name for one in fields(config)} & {one.name for one in fields(recipe.network)}
    return config(**{name: getattr(recipe.network, name) for name in kept} | changes)


_SMALL: dict[str, Any] = {"batch_size": 64, "warmup_steps": 300}
_AVERAGED: dict[str, Any] = {**_SMALL, "average_decay": 0.999}
STRIDED = DynamicConfig(stem=(Conv(64, 9, 2),), primary_types=8, primary_kernel=5, primary_stride=1)
DIGITS = Recipe("", network=STRIDED, **_SMALL)
ATTENTION = Recipe(
    "", network=AttentionConfig(), learning_rate=2e-3, convolutions="bfloat16", **_AVERAGED
)
SHARED = Recipe(
    "",
    network=SharedConfig(decoder_hidden=(256, 512)),
    absent_weight=0.25,
    convolutions="bfloat16",
    **_AVERAGED,
)
MATRIX = Recipe(
    "",
    network=MatrixConfig(
        stem=(Conv(32, 5), Conv(64, 3, 2)),
        primary_types=4,
        conv_caps=(8, 8),
        decoder_hidden=(256, 512),
    ),
    loss="spread",
    spread_steps=400,
    detach_poses=True,
    learning_rate=3e-3,
    shift_px=1,
    **_AVERAGED,
)
CNN = plain(DIGITS, BaselineConfig(convs=(8, 8, 8)))
"""As many multiplications as STRIDED: 8, 8 and 8 channels, no normalisation, and 97 % of the
parameters in one layer."""
