"""Experiments of the talks and notes behind this project: what routing does, alone and repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from model.capsnet import FAMILIES, Encoding, Family, Network, NetworkConfig
from model.capsnet.matrix import MatrixConfig
from model.capsnet.shared import SharedConfig
from model.capsnet.stem import Conv, Stem, initialise
from model.interpret.sweep import plan_sweep
from model.preprocess import Floats, scale
from training.answers import answer, evaluating, is_wrong, measure_presence
from training.data.examples import Examples
from training.data.pairs import PairDraw
from training.experiments.declare import (
    CLOTHES,
    DIGITS,
    STRIDED,
    Column,
    Experiment,
    Row,
    count_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDE_BY_SIDE = "side by side"
_SEED = 2018
_CPU = torch.device("cpu")
_SHOWN = 6
"""Pairs in the picture."""


@dataclass(frozen=True)
class PooledConfig(NetworkConfig):
    """Sizes of the CNN that Su compares shared-weight capsules with."""

    stem: tuple[Conv, ...] = SharedConfig.stem
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
            nn.Linear(config.stem[-1].channels, config.hidden),
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
_MATRIX = replace(
    _SINGLES,
    network=MatrixConfig(
        primary_types=4, conv_caps=(8, 8), inverse_temperature=0.1, initial_saving=300.0
    ),
    loss="spread",
    spread_steps=50,
    learning_rate=3e-3,
    warmup_steps=100,
    shift_px=1,
)
_FROZEN = {
    "fixed": ("W as drawn", ("votes",)),
    "trained": ("W trained", ()),
    "decoder": ("all as drawn but the decoder", ("stem", "primary", "votes")),
}


def _by_rounds(
    name: str, recipe: Any, counts: tuple[int, ...], *, setting: str, **row: Any
) -> tuple[Row, ...]:
    """The same network with so many rounds of routing each, which `setting` of its sizes counts."""
    noun = setting.removeprefix("routing_").removesuffix("s")
    return tuple(
        Row(
            f"{name}-{count}",
            count_of(count, noun),
            replace(recipe, network=replace(recipe.network, **{setting: count})),
            **row,
        )
        for count in counts
    )


_TWO: dict[str, Any] = {
    "images": 120_000,
    "tests": ("plain", SIDE_BY_SIDE),
    "curve_every": 20_000,
}

SEEDS = (
    Experiment(
        "frozen",
        "Routing against back-propagation",
        "Fashion-MNIST, the network of `mnist-compact`. W are the transformation matrices, with "
        "which primary capsules vote for classes. Below, three networks that are alike in all but "
        "what is trained draw the same held-out image, and that with each pose dimension (rows) "
        "moved from -0.25 to 0.25 (columns).",
        tuple(
            Row(
                f"frozen-{name}",
                title,
                replace(CLOTHES, network=STRIDED, warmup_steps=300, frozen=frozen),
                90_000,
                curve_every=15_000,
            )
            for name, (title, frozen) in _FROZEN.items()
        ),
    ),
    Experiment(
        "side-by-side",
        "Trained on single digits, shown two",
        "Shared-weight capsules by rounds of routing, and the same convolutions with global "
        "average pooling and two dense layers in place of capsules; same loss, no decoder. Pairs "
        "are of test digits of different classes, side by side in 28x56 pixels, as a fixed seed "
        "chooses them; both must be the two most present classes. The picture shows pairs of "
        "held-out digits and what each network names.",
        (
            *_by_rounds("side-by-side", _SINGLES, (1, 2, 3), setting="rounds", **_TWO),
            Row(
                "side-by-side-pooling",
                "CNN with pooling",
                replace(_SINGLES, network=PooledConfig()),
                **_TWO,
            ),
        ),
        (
            Column("plain", "single digits wrong, %"),
            Column(SIDE_BY_SIDE, "both of two right, %", right=True),
        ),
    ),
    Experiment(
        "em-iterations",
        "EM routing by iterations",
        "MNIST, a small network of matrix capsules (4 primary types, 8 and 8 convolutional ones), "
        "without a decoder. `inverse_temperature` and `initial_saving` were chosen with two "
        "iterations; lambda grows with each, so one and three have other activations to begin "
        "with. The rows say that these settings do not carry over, not how many are best.",
        _by_rounds(
            "em",
            _MATRIX,
            (1, 2, 3),
            setting="routing_iterations",
            images=30_000,
            curve_every=3_000,
        ),
    ),
    Experiment(
        "dynamic-iterations",
        "Dynamic routing by iterations",
        "MNIST, the network of `mnist-compact`, with reconstruction.",
        _by_rounds(
            "dynamic",
            replace(DIGITS, network=STRIDED, warmup_steps=300),
            (1, 2, 3),
            setting="routing_iterations",
            images=120_000,
            curve_every=12_000,
        ),
    ),
)


def register() -> None:
    """Make the CNN with pooling a family, for as long as the program runs."""
    FAMILIES[_POOLED.name] = _POOLED


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


def draw_pairs(networks: Mapping[str, Network], digits: Examples) -> Figure:
    """Draw some pairs side by side, and below each what the networks name, right or in red."""
    from matplotlib.figure import Figure  # noqa: PLC0415  training can do without

    both = side_by_side(digits)
    images, labels = both.images[:_SHOWN], both.labels[:_SHOWN]
    figure = Figure((9, 1 + 0.22 * len(networks)), dpi=100)
    axes = figure.subplots(1, _SHOWN)
    figure.subplots_adjust(left=0.16, right=0.99, top=1, bottom=0.2 + 0.08 * len(networks))
    for axis, image in zip(axes, images, strict=True):
        axis.imshow(image[0], cmap="gray", vmin=0, vmax=255)
        axis.set_axis_off()
    for line, (title, network) in enumerate(networks.items(), start=1):
        presence = measure_presence(network, images, _CPU)
        wrong = is_wrong(presence, labels)
        axes[0].text(-0.1, -0.4 * line, title, ha="right", transform=axes[0].transAxes)
        for axis, said, bad in zip(axes, answer(presence, labels), wrong, strict=True):
            axis.text(
                0.5,
                -0.4 * line,
                " and ".join(map(str, said)),
                color="firebrick" if bad else "black",
                ha="center",
                transform=axis.transAxes,
            )
    return figure


def draw_sweeps(networks: Mapping[str, Network], clothes: Examples, label: int = 2) -> Figure:
    """Draw the first image of a class, and what each network makes of it as its pose is moved."""
    from matplotlib.figure import Figure  # noqa: PLC0415  as above

    image = clothes.images[clothes.labels == label][:1]
    figure = Figure((3 * len(networks) + 1, 4.8), dpi=100, layout="constrained")
    widths = (1, *(3 for _ in networks))
    first, *axes = figure.subplots(1, len(widths), width_ratios=widths)
    first.imshow(image[0, 0], cmap="gray", vmin=0, vmax=255)
    first.set_title("image", fontsize=10)
    for axis, (title, network) in zip(axes, networks.items(), strict=True):
        axis.imshow(_sweep(network, scale(image), label), cmap="gray", vmin=0, vmax=1)
        axis.set_title(title, fontsize=10)
    for axis in (first, *axes):
        axis.set_axis_off()
    return figure


def _sweep(network: Network, image: Floats, label: int) -> Floats:
    """All dimensions of a class capsule's pose moved, as one picture (D * H, deltas * W)."""
    sweep = plan_sweep(range(network.config.class_dim), start=-0.25, stop=0.25, step=0.05)
    with evaluating(network), torch.inference_mode():
        pose = network(torch.from_numpy(image)).poses[0, label].numpy()
        poses = torch.from_numpy(sweep.poses(pose))
        drawn = network.decode(poses, torch.full((len(poses),), label))[:, 0].numpy()
    grid = drawn.reshape(len(sweep.dims), len(sweep.deltas), *drawn.shape[1:])
    rows, columns, height, width = grid.shape
    return np.asarray(grid.transpose(0, 2, 1, 3).reshape(rows * height, columns * width))
