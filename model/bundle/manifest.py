"""The manifest of a bundle: its content and its origin. This is schema 2."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from model.bundle.confidence import Confidence
from model.bundle.directions import Direction
from model.bundle.entry import ENTRY, Count, describe_fault, read_strictly
from model.bundle.health import Explained, Health
from model.bundle.poses import NEIGHBOURS, NOVELTY, NeighbourImages, NoveltyRule

SCHEMA_VERSION: Literal[2] = 2
SHOWN = 3
"""Channels that figures show: red, green and blue."""
MAX_CHANNELS = 16
"""Images have at most this many channels."""
PreprocessRule = Literal["digit", "pair", "stretch", "crop"]
PresenceKind = Literal["length", "activation", "probability"]
RoutingKind = Literal["iterations", "em", "attention"]
"""How presence follows from votes: after each iteration, by EM, or in a single pass with a bias."""
Offer = Literal["decode", "trace", "neighbours"]
GraphRole = Literal[
    "encoder",
    "encoder.batch",
    "encoder.fp16",  # of older bundles; nothing runs it
    "encoder.any-size",
    "decoder",
    "routing",
]
ANY_SIZE: GraphRole = "encoder.any-size"
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""The form of a bundle's name."""
_GRAPHS: dict[Offer, GraphRole] = {"decode": "decoder", "trace": "routing"}
_HAS = {"decode": "poses", "trace": "routed layers", "neighbours": "training images"}


class Training(TypedDict, total=False):
    """What the entry `training` has, among others."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    recipe: dict[str, Any]
    examples: int
    runs: list[dict[str, Any]]
    test_reads: list[dict[str, Any]]
    pictures: dict[str, Any]
    imported: str


def _check_training(values: dict[str, Any]) -> dict[str, Any]:
    try:
        return dict(TypeAdapter(Training).validate_python(values))
    except ValidationError as error:
        raise ValueError(describe_fault(error)) from error


@dataclass(frozen=True, config=ENTRY)
class Layer:
    """A layer whose input capsules are routed, and where they sit.

    Input capsule i = (type * rows + row) * columns + column.
    """

    name: str
    iterations: Count
    types: Count
    rows: Count
    columns: Count
    field_px: int
    """The height and width of an input capsule's receptive field, in pixels."""
    stride_px: int
    """The distance between the fields of neighbouring input capsules, in pixels."""
    offset_px: int = 0
    """The position of the first field, down and right; negative where layers pad the image."""

    @property
    def capsules(self) -> int:
        """The number of input capsules, I."""
        return self.types * self.rows * self.columns


@dataclass(frozen=True, config=ENTRY)
class Manifest:
    """The content of a bundle and its origin."""

    name: Annotated[str, Field(pattern=f"^{NAME.pattern}$")]
    """The bundle's name: lower-case words joined by hyphens.

    It is the service's `model` parameter.
    """
    family: str
    """The family's name: see `model.capsnet.families`."""
    dataset: str
    class_names: Annotated[tuple[str, ...], Field(min_length=1)]
    """The names of the K classes, by label."""
    channels: int
    """The number of an image's channels: 1 for grey, 3 for colour, others for arrays."""
    height: Count
    width: Count
    class_dim: int
    """The size of a pose, D; 0 where the network has none."""
    preprocess: PreprocessRule
    """The rule by which other images are fitted to the training images: see `model.preprocess`."""
    presence: PresenceKind
    """The meaning of the encoder's first output."""
    offers: tuple[Offer, ...]
    """The operations of the bundle in addition to encoding."""
    graphs: dict[GraphRole, str]
    """The graphs' file names, by role."""
    layers: tuple[Layer, ...]
    """The layers that `routing.onnx` traces; the last one feeds the class capsules."""
    opset: int
    routing: RoutingKind | None = None
    """How the last layer routes; None where it does not, or cannot be switched off."""
    family_title: str = ""
    """The family's title, in a few words."""
    version: str = ""
    """The version of the weights: the first digits of their SHA-256."""
    sha256: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of the graphs, the weights and the arrays of novelty and neighbours, by file
    name.
    """
    metrics: dict[str, Any] = field(default_factory=dict)
    """The scores on the test split, or on held-out images where there is none, and the protocol
    that gave them."""
    rounding: dict[str, Any] = field(default_factory=dict)
    """The effect of storing weights in 16 bits, measured on training images kept for validation."""
    mask_threshold: float | None = None
    """The threshold that assigns pixels to the digits of a pair: see `model.pairs`."""
    training: Annotated[dict[str, Any], AfterValidator(_check_training)] = field(
        default_factory=dict
    )
    """`recipe`, `examples` (in an epoch), `runs` (`training.provenance.Run`), `test_reads`
    (`TestRead`) and, for a folder, `pictures`."""
    directions: tuple[Direction, ...] = ()
    """Directions of the poses of each class, also those that are not offered."""
    novelty: NoveltyRule | None = None
    """The rule that says how much an image looks like those of the training."""
    neighbours: NeighbourImages | None = None
    """The training images in the bundle, among which the nearest to an image are found."""
    confidence: Confidence | None = None
    """The calibration: probabilities and sets of labels."""
    explained: Explained | None = None
    """The share of the images' variance that a pose explains, next to PCA."""
    health: Health | None = None
    """The health of the capsules, as their critics measure it."""
    analysed_version: str = ""
    """The version in which the six above were found."""
    shown_channels: tuple[int, ...] = ()
    """The channels that figures show as red, green and blue, of images with neither 1 nor 3; empty
    for the last, the middle and the first one."""
    schema_version: Literal[2] = SCHEMA_VERSION

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_images()
        self._check_findings()
        required = {"encoder", *(_GRAPHS[offer] for offer in self.offers if offer in _GRAPHS)}
        if missing := required - self.graphs.keys():
            raise ValueError(f"there is no {', '.join(sorted(missing))} graph")
        for offer, has in (
            ("trace", bool(self.layers)),
            ("decode", self.class_dim > 0),
            ("neighbours", self.neighbours is not None),
        ):
            if (offer in self.offers) != has:
                raise ValueError(f"bundles that offer {offer}, and only they, have {_HAS[offer]}")
        return self

    def _check_images(self) -> None:
        if (self.preprocess == "pair") != (self.mask_threshold is not None):
            raise ValueError("bundles for pairs of digits, and only they, have a mask threshold")
        most = MAX_CHANNELS if self.preprocess == "crop" else 1
        if not 1 <= self.channels <= most:
            raise ValueError(f"images have 1 channel, or up to {MAX_CHANNELS} where cropped")
        if len(self.shown_channels) not in (0, SHOWN):
            raise ValueError(f"figures show {SHOWN} channels, not {len(self.shown_channels)}")
        if not all(0 <= channel < self.channels for channel in self.shown_channels):
            raise ValueError(f"shown_channels are 0 to {self.channels - 1}")
        if self.preprocess in ("digit", "pair") and self.height != self.width:
            raise ValueError("strokes are looked for in square images alone")

    def _check_findings(self) -> None:
        classes, dim = self.num_classes, self.class_dim
        if self.confidence and len(self.confidence.thresholds) not in (1, classes):
            raise ValueError("confidence has thresholds of all classes, or of each")
        for one in self.directions:
            if one.label >= classes or len(one.vector) != dim:
                raise ValueError(f"{one.name} is a direction of another network")
        gaussians = self.novelty and self.novelty.gaussians
        if gaussians and gaussians.means.shape != (classes, classes * dim):
            raise ValueError(f"{NOVELTY} is of a network with other poses")
        gallery = self.neighbours and self.neighbours.gallery
        if gallery and gallery.whitening.shape[:2] != (classes, dim):
            raise ValueError(f"{NEIGHBOURS} is of a network with other poses")

    @property
    def num_classes(self) -> int:
        """The number of classes, K."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The shape of one image, (C, H, W)."""
        return (self.channels, self.height, self.width)

    @property
    def any_size(self) -> bool:
        """Whether the encoder also takes larger images: see `model.preprocess.prepare`."""
        return ANY_SIZE in self.graphs

    @property
    def of_pairs(self) -> bool:
        """Whether the network was trained on pairs of overlapping digits."""
        return self.mask_threshold is not None

    def offered_directions(self, label: int) -> list[Direction]:
        """The directions of a class that are offered."""
        return [one for one in self.directions if one.label == label and one.offered]

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            ValueError: a key is unknown or missing, or a value of the wrong kind or out of range.
        """
        if not isinstance(values, dict):
            raise ValueError("manifest.json is not a JSON object")  # noqa: TRY004  a fault of the file
        if (version := values.get("schema_version")) != SCHEMA_VERSION:
            raise ValueError(f"manifest.json: schema version {version}, expected {SCHEMA_VERSION}")
        values = {key: values[key] for key in values if key != "half_precision"}  # of older bundles
        manifest: Self = read_strictly(cls, values, "manifest.json")
        return manifest

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        values: dict[str, Any] = TypeAdapter(type(self)).dump_python(self, mode="json")
        return values
