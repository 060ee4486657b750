"""The presets: one recipe for each published network, and the paper's own."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from model.capsnet import CapsNetConfig
from training.baseline import BaselineConfig

RECONSTRUCTION_WEIGHTS = {"none": 0.0, "paper": 0.0005, "paper-code": 0.01}
"""Weight of the summed squared error beside the margin loss summed over classes.

`paper` is the text's 0.0005. The paper's released code halves the margin loss and averages it over
the ten classes too, which makes its reconstruction term twenty times stronger: `paper-code`.
"""


@dataclass(frozen=True)
class Recipe:
    """Everything that, with a seed, decides how a network is trained.

    Raises:
        ValueError: a setting is out of range.
    """

    name: str
    dataset: str = "mnist"
    task: Literal["digits", "pairs"] = "digits"
    """`pairs` lays two digits of different classes over one another (paper, section 6)."""
    network: CapsNetConfig = field(default_factory=CapsNetConfig)
    baseline: BaselineConfig | None = None
    """Trained in place of the capsule network, on images and classes of the same number."""
    epochs: float = 30.0
    """Of all training digits once, or of 100,000 pairs."""
    batch_size: int = 128
    learning_rate: float = 1e-3
    """Of Adam, at its highest."""
    schedule: Literal["exponential", "cosine"] = "cosine"
    """Cosine falls to zero at the last step; exponential multiplies by `decay_rate`."""
    decay_rate: float = 0.96
    decay_steps: int = 2000
    warmup_steps: int = 0
    """Steps over which the rate rises from zero."""
    reconstruction: Literal["none", "paper", "paper-code"] = "paper"
    """Key of RECONSTRUCTION_WEIGHTS."""
    shift_px: int = 2
    """Training images are moved by up to this many pixels each way."""
    flip: bool = False
    """Whether half of the training images, drawn anew each time, are mirrored left to right."""
    affine: float = 0.0
    """Training images are turned, scaled and sheared by up to this share of affNIST's ranges."""
    elastic_px: float = 0.0
    """They are bent: nodes of a net over them move by up to this many pixels, each its own way."""
    average_decay: float = 0.0
    """What a step leaves of the running average of the weights (less in the beginning), which is
    then validated, saved and exported in place of the weights; zero averages nothing."""

    def __post_init__(self) -> None:
        if not 0 < self.epochs < math.inf or self.batch_size < 1 or self.learning_rate <= 0:
            raise ValueError("epochs, batch size and learning rate must be positive and finite")
        if self.shift_px < 0 or self.warmup_steps < 0 or self.decay_steps < 1:
            raise ValueError("shift and warm-up may not be negative, decay steps are at least one")
        if not 0 <= self.average_decay < 1:
            raise ValueError("the decay of the average must be in [0, 1)")
        if not 0 <= self.affine <= 1 or self.elastic_px < 0:
            raise ValueError("the affine share must be in [0, 1], elastic pixels not negative")
        if self.task == "pairs" and (self.flip or self.affine or self.elastic_px):
            raise ValueError("digits of pairs are neither mirrored nor distorted")
        if self.task not in ("digits", "pairs"):
            raise ValueError(f"unknown task {self.task!r}")
        if self.schedule not in ("exponential", "cosine"):
            raise ValueError(f"unknown schedule {self.schedule!r}")
        if self.reconstruction not in RECONSTRUCTION_WEIGHTS:
            raise ValueError(f"unknown reconstruction weight {self.reconstruction!r}")

    @property
    def reconstruction_weight(self) -> float:
        """The weight that `reconstruction` names."""
        return RECONSTRUCTION_WEIGHTS[self.reconstruction]

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            ValueError, TypeError: a key is unknown or a value out of range.
        """
        baseline = values.get("baseline")
        return cls(
            **{
                **values,
                "network": CapsNetConfig.from_dict(values["network"]),
                "baseline": None if baseline is None else BaselineConfig.from_dict(baseline),
            }
        )


_PAPER = Recipe(
    name="mnist-paper", epochs=640, batch_size=128, schedule="exponential", reconstruction="paper"
)
_MNIST = Recipe(name="mnist", epochs=120, batch_size=128, warmup_steps=500)
_COMPACT = CapsNetConfig(conv_channels=64, primary_types=8)
_STRIDED = replace(_COMPACT, conv_stride=2, primary_kernel=5, primary_stride=1)
_MULTIMNIST = Recipe(
    name="multimnist",
    task="pairs",
    network=CapsNetConfig(image_size=36),
    epochs=300,
    batch_size=128,
    warmup_steps=500,
    shift_px=4,
)
_MNIST_CPU = replace(_MNIST, name="mnist-cpu", epochs=10, batch_size=64, warmup_steps=300)
_MNIST_COMPACT = replace(_MNIST_CPU, name="mnist-compact", network=_COMPACT)
_MNIST_STRIDED = replace(_MNIST_COMPACT, name="mnist-compact-strided", network=_STRIDED, epochs=30)
_MULTIMNIST_COMPACT = replace(
    _MULTIMNIST,
    name="multimnist-compact",
    network=replace(_COMPACT, image_size=36),
    epochs=20,
    batch_size=64,
    warmup_steps=300,
)
_DISTORTED: dict[str, Any] = {"affine": 0.5, "elastic_px": 1.25}
_CLOTHES: dict[str, Any] = {"dataset": "fashion-mnist", "flip": True, "average_decay": 0.999}
_PAIR_BASELINE = BaselineConfig(
    channels=(512, 256), kernels=(9, 5), pooling=True, hidden=(1024,), dropout=0
)

PRESETS = {
    recipe.name: recipe
    for recipe in (
        _PAPER,
        replace(
            _PAPER,
            name="mnist-paper-code",
            reconstruction="paper-code",
            network=CapsNetConfig(
                class_bias=True, primary_scale=1 / 32, initialisation="truncated-normal"
            ),
        ),
        _MNIST,
        replace(_MNIST, name="mnist-distorted", **_DISTORTED),
        _MNIST_CPU,
        replace(_MNIST_CPU, name="mnist-cpu-distorted", **_DISTORTED),
        _MNIST_COMPACT,
        _MNIST_STRIDED,
        replace(_MNIST_STRIDED, name="mnist-compact-strided-distorted", **_DISTORTED),
        _MULTIMNIST,
        _MULTIMNIST_COMPACT,
        replace(
            _MULTIMNIST_COMPACT,
            name="multimnist-compact-strided",
            network=replace(_STRIDED, image_size=36),
            epochs=30,
        ),
        replace(_MNIST, name="fashion-mnist", **_CLOTHES),
        replace(
            _MNIST,
            name="fashion-mnist-cpu",
            epochs=8,
            batch_size=64,
            warmup_steps=300,
            **{**_CLOTHES, "shift_px": 1},
        ),
        replace(_MNIST_COMPACT, name="fashion-mnist-compact", epochs=30, **_CLOTHES),
        *(
            replace(recipe, name=name, baseline=baseline, reconstruction="none")
            for name, recipe, baseline in (
                ("mnist-baseline", _MNIST, BaselineConfig()),
                ("mnist-baseline-compact", _MNIST_COMPACT, BaselineConfig(channels=(20, 20, 10))),
                ("multimnist-baseline", _MULTIMNIST, _PAIR_BASELINE),
                (
                    "multimnist-baseline-compact",
                    _MULTIMNIST_COMPACT,
                    replace(_PAIR_BASELINE, channels=(80, 40)),
                ),
            )
        ),
    )
}
