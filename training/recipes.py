"""Recipes, their presets, and their settings on the command line.

Each network that ships has a preset of its name, which may have changed since it was trained.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, field, replace
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)
from pydantic.dataclasses import dataclass

from model.bundle import Bundle, BundleError
from model.bundle.entry import describe_fault
from model.bundle.manifest import SHOWN
from model.capsnet.attention import AttentionConfig
from model.capsnet.dynamic import DynamicConfig
from model.capsnet.families import (
    FAMILIES,
    config_from_dict,
    config_to_dict,
    family_of,
    read_config,
)
from model.capsnet.matrix import MatrixConfig
from model.capsnet.network import NetworkConfig
from model.capsnet.shared import SharedConfig
from model.capsnet.stem import Conv, Residual, StemLayer, Whiten
from training.data.augment import Augmentation

TaskName = Literal["single", "pairs"]
LossName = Literal["margin", "spread", "cross-entropy"]
Schedule = Literal["exponential", "cosine"]
Precision = Literal["float32", "bfloat16"]
Kept = Literal["last", "best"]

FOLDER = "folder"
"""The data set of presets that learn a folder of images alone."""
PAPER_MSE_WEIGHT = 0.0005 * 28 * 28
"""The reconstruction's weight in Sabour 2017, whose text has 0.0005 times the sum over pixels."""
PAPER_CODE_MSE_WEIGHT = 0.01 * 28 * 28
"""The reconstruction's weight in that paper's released code, relative to its margin loss.

The code halves the margin loss and averages it over the ten classes too, so that its reconstruction
weighs twenty times as much.
"""
_Part = Annotated[float, Field(gt=0, le=1)]
_Decay = Annotated[float, Field(ge=0, lt=1)]


class SettingError(ValueError):
    """A setting is unknown, or cannot be had here. The message names what can."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False))
class Recipe(Augmentation):
    """Everything that, with a seed, decides how a network is trained, up to a device's rounding.

    Raises:
        ValueError: a setting is out of range.
    """

    name: str
    dataset: str = "mnist"
    task: TaskName = "single"
    """`pairs` lays two digits of different classes over one another (Sabour 2017, section 6)."""
    network: NetworkConfig = field(default_factory=DynamicConfig)
    loss: LossName = "margin"
    absent_weight: NonNegativeFloat = 0.5
    """Weight of absent classes in the margin loss."""
    spread_steps: PositiveInt = 50_000
    """Time constant of the spread loss: its margin is half of the way up after four times as many
    steps: see `training.losses`."""
    mse_weight: NonNegativeFloat = PAPER_MSE_WEIGHT
    """Weight of the reconstruction's mean squared error over pixels and channels, the same for
    images of any size; zero trains no decoder. Sabour 2017 sums over 28 x 28 pixels: 0.392."""
    reconstruction_share: _Part = 1.0
    """Share of each batch that is reconstructed; less saves time."""
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay (Loshchilov and Hutter 2019): each step subtracts this times Adam's
    rate from every matrix and kernel, those of Muon too; biases and norms do not decay."""
    shown_channels: Annotated[tuple[int, ...], Field(strict=False)] = ()
    """The channels that figures show as red, green and blue, of images with neither 1 nor 3; none
    for the last, the middle and the first one."""
    detach_poses: bool = False
    """The decoder gets detached poses, so that its loss does not reach the encoder."""
    frozen: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Parts of the network, such as `stem` or `classes.weight`, that are not trained."""
    pretrained: str = ""
    """The origin and licence of the published weights that a pretrained stem starts from."""
    epochs: PositiveFloat = 30.0
    """Passes over the training images; for pairs, one epoch is 100,000 pairs."""
    learning_rate: PositiveFloat = 1e-3
    """Peak learning rate of Adam."""
    muon_rate: NonNegativeFloat = 0.0
    """Peak learning rate of Muon, for convolutions with several input channels; zero leaves them to
    Adam. It has Adam's schedule: see `training.muon`."""
    muon_normalised: bool = False
    """After each step, Muon scales the kernels of the stem back to the norm that they began with
    (as airbench does); batch normalisation must follow them."""
    muon_votes: NonNegativeFloat = 0.0
    """Muon's rate for the transformation matrices of dynamic and self-attention routing: a factor
    of Adam's rate, unlike `muon_rate`; zero leaves them to Adam."""
    schedule: Schedule = "cosine"
    """Cosine falls to zero at the last step; exponential loses 4 % every 2,000 steps."""
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises from zero, at most a tenth of the run."""
    convolutions: Precision = "float32"
    """Data type of convolutions (and a baseline's linear layers) in training, on a CPU with
    instructions for bfloat16; on other CPUs it is float32, on a GPU always bfloat16."""
    decoder: Precision = "float32"
    """Data type of the decoder in training, on a CPU with instructions for bfloat16."""
    average_decay: _Decay = 0.0
    """Decay of the exponential moving average of the weights (lower in the first steps), which is
    then validated, saved and exported in place of the weights; zero averages nothing."""

    keep: Kept = "last"
    """The weights that are exported: those of the last step, or the latest of those with the fewest
    errors on held-out images, where some are held out.
    """

    def __post_init__(self) -> None:
        if self.loss == "cross-entropy" and not self.network.has_logits:
            raise ValueError("cross-entropy is a baseline's loss; others have margin or spread")
        channels = self.network.channels
        shown = self.shown_channels
        others = channels not in (1, SHOWN)  # a folder sets its own number of channels
        if shown and (len(shown) != SHOWN or (others and max(shown) >= channels) or min(shown) < 0):
            raise ValueError(f"shown_channels are {SHOWN} numbers of channels, below {channels}")
        self._check_family()
        if self.task == "pairs":
            self._check_pairs()

    def _check_family(self) -> None:
        own_votes = isinstance(self.network, DynamicConfig | AttentionConfig)
        if self.muon_normalised and not isinstance(self.network, AttentionConfig):
            raise ValueError("muon_normalised is for self-attention routing")
        if not own_votes and self.muon_votes:
            raise ValueError("muon_votes is for dynamic and self-attention routing")

    def _check_pairs(self) -> None:
        if self.flip or self.distorts or self.cutout_px or self.pad != "zero":
            raise ValueError("pairs allow no flip, distortion or cutout, and pad must be zero")
        if self.loss == "spread":
            raise ValueError("the spread loss is for one class in an image: pairs have two")
        if self.network.height != self.network.width:
            raise ValueError("pairs are square: height and width must be equal")

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON-ready values."""
        return {**asdict(self), "network": config_to_dict(self.network)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Settings that this trainer does not have are left out.

        Raises:
            ValueError: a value is of another type or out of range.
        """
        known = {name: values[name] for name in values.keys() & cls.__dataclass_fields__.keys()}
        try:
            return cls(**known | {"network": config_from_dict(values["network"])})
        except ValidationError as error:
            raise ValueError(describe_fault(error)) from error


def recipe_of(bundle: Bundle) -> Recipe:
    """The recipe of a bundle's network.

    Raises:
        BundleError: its family, or one of its settings, is not known here.
    """
    family = bundle.manifest.family
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise BundleError(
            f"{bundle.path}: the family {family} is none of {known}, so its training data are "
            "unknown: name a folder of pictures with --data"
        )
    try:
        return Recipe.from_dict(bundle.manifest.training["recipe"])
    except (LookupError, TypeError, ValueError) as error:
        raise BundleError(f"{bundle.path}: its recipe cannot be read: {error}") from error


def override(recipe: Recipe, settings: Sequence[str], *, fixed: Collection[str] = ()) -> Recipe:
    """A recipe with other values of some fields, its own or its network's.

    Args:
        settings: each `KEY=VALUE`. A field of the network is called `network.KEY`, or by its own
            name where the recipe has none of that name. Values are JSON or plain words; a list may
            also be written with commas alone.
        fixed: fields that something else decides.

    Raises:
        SettingError: a field is unknown or fixed, or a value is of the wrong kind or out of range.
    """
    own, network = asdict(recipe), asdict(recipe.network)
    del own["network"]
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise SettingError(f"{setting!r} is not KEY=VALUE")
        name = key.removeprefix("network.")
        if name in fixed:
            raise SettingError(f"{key} is set by the data set")
        if name == key and key in own:
            own[key] = _parse(text, own[key])
        elif name in network:
            network[name] = _parse(text, network[name])
        else:
            raise SettingError(
                f"{key} is no setting. The recipe has {', '.join(own)}; its "
                f"{family_of(recipe.network).name} network has {', '.join(network)}"
            )
    try:
        return Recipe(**own, network=read_config(type(recipe.network), network))
    except ValueError as error:
        raise SettingError(describe_fault(error)) from error


def _parse(text: str, current: Any) -> Any:
    """The value that a text means for a field, of whose type is `current`."""
    if isinstance(current, str):
        return text
    value = _word(text)
    if isinstance(current, tuple) and not isinstance(value, list):
        return [_word(part) for part in text.split(",") if part]
    return value


def _word(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


_DISTORTED: dict[str, Any] = {"affine": 0.5, "elastic_px": 1.25}
_UNDISTORTED: dict[str, Any] = {"affine": 0.0, "elastic_px": 0.0}
_AVERAGED: dict[str, Any] = {"average_decay": 0.999}
_BFLOAT16: dict[str, Any] = {"convolutions": "bfloat16"}
"""Several small convolutions are 1.4 to 1.8 times as fast in bfloat16."""
_BATCH_64: dict[str, Any] = {"batch_size": 64, "warmup_steps": 300}
_MUON: dict[str, Any] = {"muon_rate": 0.03, "muon_votes": 0.2}
_DRAWN: dict[str, Any] = {
    "mse_weight": 4.0,
    "reconstruction_share": 0.25,
    "decoder": "bfloat16",
}
"""Ten times the paper's weight of the reconstruction draws more of the image and costs digits and
clothes no errors. A quarter of each batch is enough, because decoding takes most of the time."""
_UP: dict[str, Any] = {"decoder_hidden": (256,), "decoder_channels": (64, 32, 16)}
_ATTENTION = Recipe(
    "mnist-attention",
    network=AttentionConfig(**_UP),
    epochs=40,
    learning_rate=2e-3,
    **_DRAWN | {"mse_weight": 8.0, "reconstruction_share": 0.5},
    **_BATCH_64,
    **_DISTORTED,
    **_BFLOAT16,
    **_AVERAGED,
)


def _residual(first: int, second: int, third: int, last: int) -> tuple[StemLayer, ...]:
    """Four convolutions of these channels, and three residual blocks between them."""
    return (
        *(Conv(first, 5, 2), Conv(second, 3), Residual()),
        *(Conv(third, 3, 2), Residual(), Residual(), Conv(last, 1, activation="none")),
    )


def _gelu(width: int, max_pool: int = 1) -> Conv:
    return Conv(width, 3, padding=1, max_pool=max_pool, activation="gelu")


_PICTURE_NETWORK = AttentionConfig(
    channels=3,
    height=32,
    width=32,
    stem=_residual(32, 64, 128, 64),
    norm_first=True,
    primary="spatial",
    **_UP,
)
_PICTURES = Recipe(
    "pictures",
    dataset=FOLDER,
    network=_PICTURE_NETWORK,
    epochs=30,
    learning_rate=2e-3,
    flip=True,
    shift_px=3,
    pad="reflect",
    **_DRAWN,
    **_BATCH_64,
    **_BFLOAT16,
    **_AVERAGED,
    **_MUON,
)

_PRESETS = (
    Recipe("mnist", epochs=100, warmup_steps=500, **_DISTORTED),
    Recipe(
        "mnist-compact",
        network=DynamicConfig(
            stem=(Conv(64, 9, 2),), primary_types=8, primary_kernel=5, primary_stride=1, **_UP
        ),
        epochs=30,
        **_DRAWN,
        **_BATCH_64,
        **_DISTORTED,
    ),
    Recipe("mnist-paper", epochs=640, schedule="exponential"),
    Recipe(
        "mnist-paper-code",
        network=DynamicConfig(
            class_bias=True, primary_scale=1 / 32, initialisation="truncated-normal"
        ),
        mse_weight=PAPER_CODE_MSE_WEIGHT,
        epochs=640,
        schedule="exponential",
    ),
    _ATTENTION,
    replace(
        _ATTENTION,
        name="multimnist-attention",
        task="pairs",
        network=AttentionConfig(
            height=36,
            width=36,
            stem=_residual(48, 96, 96, 160),
            norm_first=True,
            primary="spatial",
            **_UP,
        ),
        epochs=64,
        batch_size=128,
        shift_px=4,
        **_DRAWN,
        **_MUON,
        **_UNDISTORTED,
    ),
    replace(
        _ATTENTION,
        name="fashion-mnist-attention",
        dataset="fashion-mnist",
        network=AttentionConfig(
            stem=(
                *(Whiten(), _gelu(48, 2), _gelu(48)),
                *(_gelu(160, 2), Residual(), _gelu(192, 2), Residual()),
            ),
            norm_first=True,
            primary="spatial",
            **_UP,
        ),
        epochs=64,
        batch_size=500,
        learning_rate=3e-3,
        pad="reflect",
        flip=True,
        flip_alternates=True,
        cutout_px=8,
        muon_rate=0.08,
        muon_normalised=True,
        weight_decay=0.05,
        **_UNDISTORTED,
    ),
    replace(
        _PICTURES,
        name="cifar10",
        dataset="cifar-10",
        network=replace(
            _PICTURE_NETWORK,
            stem=(
                *(Whiten(), _gelu(64, 2), _gelu(64)),
                *(_gelu(192, 2), Residual(), _gelu(256, 2), Residual()),
            ),
        ),
        epochs=90,
        batch_size=500,
        learning_rate=3e-3,
        shift_px=4,
        flip_alternates=True,
        cutout_px=12,
        mse_weight=32.0,
        reconstruction_share=0.5,
        muon_rate=0.08,
        muon_normalised=True,
        muon_votes=0.0,
        weight_decay=0.05,
    ),
    _PICTURES,
    Recipe(
        "mnist-shared",
        network=SharedConfig(**_UP),
        absent_weight=0.25,
        epochs=12,
        **_DRAWN,
        **_BATCH_64,
        **_DISTORTED,
        **_BFLOAT16,
        **_AVERAGED,
    ),
    Recipe(
        "mnist-matrix",
        network=MatrixConfig(
            stem=(Conv(32, 5), Conv(64, 3, 2)),
            primary_types=4,
            conv_caps=(8, 8),
            **_UP,
        ),
        loss="spread",
        spread_steps=400,
        detach_poses=True,
        epochs=8,
        learning_rate=3e-3,
        muon_rate=0.03,
        shift_px=1,
        **_DRAWN,
        **_BATCH_64,
        **_BFLOAT16,
        **_AVERAGED,
    ),
    Recipe(
        "assemblies",
        dataset="assemblies",
        network=AttentionConfig(
            height=48,
            width=48,
            num_classes=5,
            stem=(
                *(Conv(32, 5), Conv(32, 3, 2), Conv(64, 3)),
                *(Conv(64, 3, 2), Conv(128, 3), Conv(64, 3)),
            ),
            norm_first=True,
            primary="spatial",
            decoder_hidden=(256,),
            decoder_channels=(128, 64, 32, 16),
        ),
        epochs=8,
        learning_rate=2e-3,
        mse_weight=4.0,
        **_BATCH_64,
        **_BFLOAT16,
        **_AVERAGED,
    ),
)
PRESETS = {recipe.name: recipe for recipe in _PRESETS}
