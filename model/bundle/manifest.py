"""The manifest of a bundle: its content and its origin. This is schema 2."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, Self, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from model.bundle.confidence import Confidence
from model.bundle.dimensions import PoseDimension
from model.bundle.explained import Explained
from model.bundle.health import Health
from model.bundle.neighbours import NeighbourImages
from model.bundle.novelty import NoveltyRule

SCHEMA_VERSION = 2
SHOWN = 3
"""Channels that figures show: red, green and blue."""
MAX_CHANNELS = 16
"""Images have at most this many channels."""
PreprocessRule = Literal["digit", "pair", "stretch", "crop"]
PresenceKind = Literal["length", "activation", "probability"]
Offer = Literal["decode", "trace", "neighbours"]
GraphRole = Literal[
    "encoder",
    "encoder.batch",
    "encoder.fp16",
    "encoder.int8",
    "encoder.any-size",
    "decoder",
    "routing",
]
ANY_SIZE: GraphRole = "encoder.any-size"
HALF: GraphRole = "encoder.fp16"
EIGHT_BITS: GraphRole = "encoder.int8"
_RULES: dict[str, type[NoveltyRule | Confidence | Explained | Health]] = {
    "novelty": NoveltyRule,
    "confidence": Confidence,
    "explained": Explained,
    "health": Health,
}
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""The form of a bundle's name."""
_GRAPHS: dict[Offer, GraphRole] = {"decode": "decoder", "trace": "routing"}


@dataclass(frozen=True)
class Layer:
    """A layer whose input capsules are routed, and where they sit.

    Input capsule i = (type * rows + row) * columns + column.
    """

    name: str
    iterations: int
    types: int
    rows: int
    columns: int
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


@dataclass(frozen=True)
class Manifest:
    """The content of a bundle and its origin.

    Raises:
        ValueError: two entries contradict each other or one is out of range.
    """

    name: str
    """The bundle's name: lower-case words joined by hyphens.

    It is the service's `model` parameter.
    """
    family: str
    """The family's name: see `model.capsnet.families`."""
    dataset: str
    class_names: tuple[str, ...]
    """The names of the K classes, by label."""
    channels: int
    """The number of an image's channels: 1 for grey, 3 for colour, others for arrays."""
    height: int
    width: int
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
    half_precision: dict[str, Any] = field(default_factory=dict)
    """The effect of the float16 encoder, measured on the CPU on the same images."""
    eight_bits: dict[str, Any] = field(default_factory=dict)
    """The effect of the encoder in 8 bits, measured on the same images."""
    mask_threshold: float | None = None
    """The threshold that assigns pixels to the digits of a pair: see `model.views.masks`."""
    training: dict[str, Any] = field(default_factory=dict)
    """`recipe`, `examples` (in an epoch), `runs` (`training.provenance.Run`), `test_reads`
    (`TestRead`) and, for a folder, `pictures`."""
    pose_dimensions: tuple[PoseDimension, ...] = ()
    """The effect of each pose dimension on the image, for the classes where it was measured."""
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
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema version {self.schema_version}, expected {SCHEMA_VERSION}")
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a bundle name")
        self._check_words()
        self._check_sizes()
        required = {"encoder", *(_GRAPHS[offer] for offer in self.offers if offer in _GRAPHS)}
        if missing := required - self.graphs.keys():
            raise ValueError(f"there is no {', '.join(sorted(missing))} graph")
        if ("trace" in self.offers) != bool(self.layers):
            raise ValueError("bundles that offer traces, and only they, have routed layers")
        if ("decode" in self.offers) != (self.class_dim > 0):
            raise ValueError("bundles that offer decoding, and only they, have poses")
        if ("neighbours" in self.offers) != (self.neighbours is not None):
            raise ValueError("bundles that offer neighbours, and only they, have training images")

    def _check_words(self) -> None:
        for value, known in (
            (self.preprocess, PreprocessRule),
            (self.presence, PresenceKind),
            *((offer, Offer) for offer in self.offers),
            *((role, GraphRole) for role in self.graphs),
        ):
            if value not in get_args(known):
                raise ValueError(f"{value!r} is none of {', '.join(get_args(known))}")

    def _check_sizes(self) -> None:
        if (self.preprocess == "pair") != (self.mask_threshold is not None):
            raise ValueError("bundles for pairs of digits, and only they, have a mask threshold")
        most = MAX_CHANNELS if self.preprocess == "crop" else 1
        if not 1 <= self.channels <= most:
            raise ValueError(f"images have 1 channel, or up to {MAX_CHANNELS} where cropped")
        if self.shown_channels and len(self.shown_channels) != SHOWN:
            raise ValueError(f"figures show {SHOWN} channels, not {len(self.shown_channels)}")
        if not all(0 <= channel < self.channels for channel in self.shown_channels):
            raise ValueError(f"shown_channels are 0 to {self.channels - 1}")
        if min(len(self.class_names), self.height, self.width) < 1:
            raise ValueError("sizes must be positive")
        if self.preprocess in ("digit", "pair") and self.height != self.width:
            raise ValueError("strokes are looked for in square images alone")

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

    def meaning(self, label: int, dim: int) -> PoseDimension | None:
        """Return the effect of one dimension of a class's pose; None if it was not measured."""
        for dimension in self.pose_dimensions:
            if (dimension.label, dimension.dim) == (label, dim):
                return dimension
        return None

    def to_dict(self) -> dict[str, Any]:
        """The manifest as JSON-ready values."""
        novelty = self.novelty and self.novelty.to_dict()
        neighbours = self.neighbours and self.neighbours.to_dict()
        offers = tuple(offer for offer in self.offers if offer != "neighbours")
        plain = asdict(replace(self, novelty=None, neighbours=None, offers=offers))
        return {**plain, "offers": self.offers, "novelty": novelty, "neighbours": neighbours}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            ValueError: a key is unknown or missing, or a value of the wrong kind or out of range.
        """
        if values.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(
                f"schema version {values.get('schema_version')}, expected {SCHEMA_VERSION}"
            )
        if unknown := values.keys() - {entry.name for entry in fields(cls)}:
            raise ValueError(f"unknown entries: {', '.join(sorted(unknown))}")
        _check_kinds(cls, values)
        try:
            return cls(**{**values, **_typed(values)})
        except TypeError as error:
            raise ValueError(str(error)) from error


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    """Convert the JSON values that are objects of their own in a manifest."""
    typed: dict[str, Any] = {
        name: tuple(values[name])
        for name in ("class_names", "offers", "shown_channels")
        if name in values
    }
    for name, kind in (("layers", Layer), ("pose_dimensions", PoseDimension)):
        if name in values:
            typed[name] = tuple(kind(**entry) for entry in values[name])
    for name, rule in _RULES.items():
        if values.get(name) is not None:
            _check_kinds(rule, values[name])
            typed[name] = rule.from_dict(values[name])
    if values.get("neighbours") is not None:
        typed["neighbours"] = NeighbourImages.from_dict(values["neighbours"])
    return typed


def _check_kinds(kind: type, values: Any) -> None:
    """Refuse JSON values of another kind than a dataclass's entries have.

    Raises:
        ValueError: the first of them, or that an entry is missing.
    """
    try:
        _entries(kind).model_validate_json(json.dumps(values))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise ValueError(f"{where}: {fault['msg']}") from error


@cache
def _entries(kind: type) -> type[BaseModel]:
    """A pydantic model that checks the types of a dataclass's fields.

    Those that are dataclasses of their own, such as `novelty`, are checked elsewhere.
    """
    hints = get_type_hints(kind)
    elsewhere = {*_RULES, "neighbours", "gaussians"}
    own = [entry for entry in fields(kind) if entry.name not in elsewhere]
    entries: dict[str, Any] = {
        entry.name: (
            hints[entry.name],
            ... if entry.default is MISSING and entry.default_factory is MISSING else None,
        )
        for entry in own
    }
    return create_model(kind.__name__, __config__=ConfigDict(strict=True), **entries)
