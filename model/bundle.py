"""The bundle: a folder with a trained network's graphs, weights, manifest and model card.

encoder.onnx   images float32 (N, 1, H, W)  ->  lengths (N, K), poses (N, K, D)
encoder.batch.onnx  the same, with a convolution that pays for several images on a CPU
encoder.fp16.onnx   the same, with convolutions and votes in float16: for CUDA
decoder.onnx   poses float32 (M, D), classes int64 (M,)  ->  images float32 (M, 1, H, W)
routing.onnx   images  ->  couplings and logits (N, R, K, I), route_poses (N, R, K, D),
               primary_lengths (N, I), votes (N, K, I, D)
weights.bin    the weights of all of them, stored once: in 16 bits, or in 8 bits and one scale for
               each channel
manifest.json  what is in the folder: see `Manifest`
CARD.md        the model card, beside the pictures that it shows
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args

from model.atomic_file import replacing
from model.dimensions import PoseDimension
from model.familiarity import Familiarity

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
ENCODER = "encoder.onnx"
ENCODER_BATCH = "encoder.batch.onnx"
ENCODER_HALF = "encoder.fp16.onnx"
DECODER = "decoder.onnx"
ROUTING = "routing.onnx"
WEIGHTS = "weights.bin"
CARD = "CARD.md"
GRAPHS = (ENCODER, ENCODER_BATCH, ENCODER_HALF, DECODER, ROUTING)

PreprocessRule = Literal["digit", "pair", "stretch"]
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""What a bundle may be called."""


class BundleError(Exception):
    """A bundle is missing, incomplete, altered or of another schema; the message names it."""


@dataclass(frozen=True)
class Manifest:
    """What a bundle holds and where it came from.

    Raises:
        ValueError: two entries contradict each other or one is out of range.
    """

    name: str
    """Lower-case words joined by hyphens: the `model` parameter of the service."""
    dataset: str
    class_names: tuple[str, ...]
    """K names, by label."""
    image_size: int
    """Height and width of the network's images, in pixels."""
    class_dim: int
    """D, the size of a pose."""
    preprocess: PreprocessRule
    """How other pictures are made to look like the training images: see `model.preprocess`."""
    routing_iterations: int
    primary_types: int
    primary_grid: int
    """Primary capsule i = (type * grid + row) * grid + column."""
    opset: int
    primary_field_px: int
    """Height and width of what a primary capsule sees, in pixels."""
    primary_stride_px: int
    """Pixels from one primary capsule's field to the next one's."""
    sha256: dict[str, str] = field(default_factory=dict)
    """Digest of each file but the manifest and the card."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Test scores with the protocol that gave them."""
    rounding: dict[str, Any] = field(default_factory=dict)
    """What storing the weights in fewer bits did, on training digits kept for validation."""
    half_precision: dict[str, Any] = field(default_factory=dict)
    """What the float16 encoder does, measured on the CPU on such digits."""
    mask_threshold: float | None = None
    """For pairs of digits: see `model.segmentation`."""
    training: dict[str, Any] = field(default_factory=dict)
    """Recipe, seed and time."""
    pose_dimensions: tuple[PoseDimension, ...] = ()
    """What each pose dimension does to the picture, for the classes where that was measured."""
    known: Familiarity | None = None
    """The rule that says how familiar a picture looks, where one was fitted."""
    studied_weights: str = ""
    """Digest of the weights in which the two above were found."""
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema version {self.schema_version}, expected {SCHEMA_VERSION}")
        if not NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a bundle name")
        if self.preprocess not in get_args(PreprocessRule):
            raise ValueError(f"unknown preprocessing rule {self.preprocess!r}")
        if (self.preprocess == "pair") != (self.mask_threshold is not None):
            raise ValueError("bundles for pairs of digits, and only they, have a mask threshold")
        sizes = (
            len(self.class_names),
            self.image_size,
            self.class_dim,
            self.routing_iterations,
            self.primary_types,
            self.primary_grid,
            self.primary_field_px,
            self.primary_stride_px,
        )
        if min(sizes) < 1:
            raise ValueError("sizes must be positive")

    @property
    def num_classes(self) -> int:
        """K."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of one image."""
        return (1, self.image_size, self.image_size)

    def meaning(self, label: int, dim: int) -> PoseDimension | None:
        """What one dimension of a class's pose does, if that was measured."""
        for one in self.pose_dimensions:
            if (one.label, one.dim) == (label, dim):
                return one
        return None

    def to_dict(self) -> dict[str, Any]:
        """The manifest as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote.

        Raises:
            ValueError: a key is unknown or missing, or a value of the wrong kind or out of range.
        """
        unknown = values.keys() - {entry.name for entry in fields(cls)}
        if unknown:
            raise ValueError(f"unknown entries: {', '.join(sorted(unknown))}")
        if not isinstance(values.get("sha256", {}), dict):
            raise ValueError("sha256 maps file names to digests")  # noqa: TRY004  see Raises
        try:
            return cls(**{**values, **_typed(values)})
        except TypeError as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk."""

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read a bundle's manifest and verify every file against it.

        Raises:
            BundleError: something is missing, altered or unreadable.
        """
        manifest = _read_manifest(path)
        missing = {*GRAPHS, WEIGHTS} - manifest.sha256.keys()
        if missing:
            raise BundleError(f"{path}: the manifest does not list {', '.join(sorted(missing))}")
        for name, expected in manifest.sha256.items():
            if Path(name).name != name:
                raise BundleError(f"{path}: {name!r} lies outside the bundle")
            if digest(path / name, path) != expected:
                raise BundleError(f"{path}: {name} is not the file that the manifest describes")
        return cls(path, manifest)


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    """Those JSON values that are no plain ones in a manifest."""
    typed: dict[str, Any] = {}
    if "class_names" in values:
        typed["class_names"] = tuple(values["class_names"])
    if "pose_dimensions" in values:
        typed["pose_dimensions"] = tuple(PoseDimension(**one) for one in values["pose_dimensions"])
    if values.get("known") is not None:
        typed["known"] = Familiarity.from_dict(values["known"])
    return typed


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write `path/manifest.json` in one step."""
    text = json.dumps(manifest.to_dict(), indent=2, ensure_ascii=False) + "\n"
    with replacing(path / MANIFEST) as file:
        file.write(text.encode())


def digest(file: Path, bundle: Path) -> str:
    """SHA-256 of a bundle's file.

    Raises:
        BundleError: it cannot be read.
    """
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise BundleError(f"{bundle}: {file.name} cannot be read: {error.strerror}") from error


def _read_manifest(path: Path) -> Manifest:
    try:
        values = json.loads((path / MANIFEST).read_text())
    except OSError as error:
        raise BundleError(f"{path}: {MANIFEST} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BundleError(f"{path}: {MANIFEST} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise BundleError(f"{path}: {MANIFEST} is not a JSON object")
    try:
        return Manifest.from_dict(values)
    except ValueError as error:
        raise BundleError(f"{path}: {MANIFEST}: {error}") from error
