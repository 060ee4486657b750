"""What the service answers: images are Pillow's, lists of numbers are numpy arrays.

The names are those of the OpenAPI document. There, `model` and `version` stand once beside all
predictions; here each prediction has them.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from cattrs import BaseValidationError, Converter
from numpy.typing import NDArray
from PIL import Image

from capsnet.errors import InvalidAnswer, Problem

Floats: TypeAlias = NDArray[np.float64]
T = TypeVar("T")


class Answer:
    """What all answers have."""

    def to_dict(self) -> dict[str, Any]:
        """The answer's JSON: arrays are lists, images are PNG data URLs."""
        members: dict[str, Any] = _CONVERTER.unstructure(self)
        return members


@dataclass(frozen=True, eq=False, kw_only=True)
class FitReport(Answer):
    """What was done to the image before the network saw it."""

    fit: str
    """`none`, `stretch`, `crop`, `digit` or `pair`."""
    polarity: str | None
    """As uploaded; None for photographs."""
    box: tuple[int, int, int, int] | None
    """Left, top, right and bottom of the strokes, in pixels, if any were looked for and found."""


@dataclass(frozen=True, eq=False, kw_only=True)
class NoveltyReport(Answer):
    """How unlike the training images an image is, by shares of training images less unusual."""

    novel: bool
    """Whether 95 % of training images have a lower score."""
    score: float
    """The highest of the four scores below."""
    length_score: float
    margin_score: float
    error_score: float
    distance_score: float | None = None
    error: float
    """Squared error of the reconstruction, as a share of the ink."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction(Answer):
    """What the network says of one image."""

    model: str
    version: str
    label: int
    class_name: str
    length: float
    """Confidence in the label, in [0, 1]."""
    lengths: Floats
    """(K,), by label."""
    poses: Floats | None = None
    """(K, D), if asked for."""
    novelty: NoveltyReport | None = None
    fit: FitReport


@dataclass(frozen=True, eq=False, kw_only=True)
class FailedPrediction(Answer):
    """Why one image of several has no prediction."""

    problem: Problem


@dataclass(frozen=True, eq=False, kw_only=True)
class BundleAnswer(Answer):
    """Which bundle answers."""

    model: str
    version: str
    """Of the weights."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CapsuleAnswer(BundleAnswer):
    """Which class of an image the answer is about."""

    label: int
    class_name: str
    length: float
    """Confidence that the class is present, in [0, 1]."""
    fit: FitReport


@dataclass(frozen=True, eq=False, kw_only=True)
class Meaning(Answer):
    """What a pose dimension was found to do."""

    name: str
    sign: int
    """1: increasing the dimension gives more; -1: less; 0: none."""
    strength: float
    """Share of the image's change that the name explains."""
    effect: str
    """Of increasing the dimension, in words; may be empty."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReconstructAnswer(CapsuleAnswer):
    """What the network imagined."""

    input: Image.Image
    """The image as the network saw it."""
    reconstruction: Image.Image
    error: float
    """Mean squared error, pixels in [0, 1]."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PerturbAnswer(CapsuleAnswer):
    """An image before and after one pose dimension was moved."""

    dim: int
    delta: float
    meaning: Meaning | None = None
    pose: Floats
    """(D,)."""
    perturbed_pose: Floats
    reconstruction: Image.Image
    perturbed: Image.Image


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepAnswer(CapsuleAnswer):
    """One row of images for each dimension, one column for each delta."""

    pose: Floats
    """(D,)."""
    dims: list[int]
    deltas: list[float]
    meanings: list[Meaning | None]
    images: list[list[Image.Image]]


@dataclass(frozen=True, eq=False, kw_only=True)
class DecodeAnswer(BundleAnswer):
    """The images of some poses, in order."""

    label: int
    class_name: str
    images: list[Image.Image]


@dataclass(frozen=True, eq=False, kw_only=True)
class Segment(Answer):
    """One detected class."""

    label: int
    class_name: str
    length: float
    mask: Image.Image
    reconstruction: Image.Image
    """Its capsule, decoded alone."""
    ink_share: float
    """Share of the ink in the mask; shared ink counts in each."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SegmentAnswer(BundleAnswer):
    """An image of overlapping digits, taken apart."""

    segments: list[Segment]
    """The longest capsule first."""
    explained_ink: float
    """Share of the ink that is in any mask."""
    fit: FitReport


@dataclass(frozen=True, eq=False, kw_only=True)
class RoutingIteration(Answer):
    """The state after one iteration."""

    lengths: Floats
    """(K,)."""
    agreement: Floats
    """(K,), -1 to 1: how well the votes agree."""
    entropy: float
    """Of the softmax of the logits, from 0 to 1."""
    couplings: Floats | None = None
    """(K, I), with `detail`."""
    logits: Floats | None = None
    """(K, I), with `detail`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class HeatMaps(Answer):
    """How much of a class's length before its squash comes from where."""

    grid: Floats
    """(R, K, rows, columns), from the top."""
    types: Floats
    """(R, K, T): summed over the grid."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Votes(Answer):
    """The votes for the label in the plane in which they differ most."""

    explained: Floats
    """Share of their variance along x and along y."""
    points: Floats | None = None
    """(I, 2), centred, with `detail`."""
    couplings: Floats | None = None
    """(I,), the last, with `detail`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class HiddenIteration(Answer):
    """A layer of convolutional capsules after one iteration."""

    activations: Floats
    """(T',): means over the layer's grid."""
    maps: Floats | None = None
    """(T', rows, columns), with `detail`."""
    assignments: Floats
    """(T', T): shares of each type of input."""


@dataclass(frozen=True, eq=False, kw_only=True)
class HiddenLayer(Answer):
    """A routed layer before the last one."""

    name: str
    iterations: list[HiddenIteration]


@dataclass(frozen=True, eq=False, kw_only=True)
class RoutingAnswer(CapsuleAnswer):
    """The state of routing after each iteration; input capsule i = (t * rows + y) * columns + x."""

    types: int
    rows: int
    columns: int
    iterations: list[RoutingIteration]
    heat_maps: HeatMaps
    votes: Votes
    layers: list[HiddenLayer]


@dataclass(frozen=True, eq=False, kw_only=True)
class EquivarianceAnswer(CapsuleAnswer):
    """Length and pose of a class while the image is moved, by steps."""

    transform: str
    values: list[float]
    lengths: Floats
    """(steps,)."""
    labels: list[int]
    """The most present class at each step."""
    angles_deg: Floats | None = None
    """(steps,), to the untransformed pose; None without poses."""
    poses: Floats | None = None
    """(steps, D); None without poses."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelSummary(Answer):
    """One loaded bundle."""

    name: str
    version: str
    family: str
    dataset: str
    class_names: list[str]
    channels: int
    height: int
    width: int
    any_size: bool
    """Whether `classify` with `fit="none"` also takes larger images."""
    class_dim: int
    """D, the size of a pose; 0 where there are none."""
    presence: str
    offers: list[str]
    default: bool
    metrics: dict[str, Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Limits(Answer):
    """What one request may hold."""

    images: int
    """Of one request to classify."""
    body_bytes: int


@dataclass(frozen=True, eq=False, kw_only=True)
class ModelsAnswer(Answer):
    """All loaded bundles."""

    provider: str
    """The onnxruntime provider in use."""
    limits: Limits
    models: list[ModelSummary]


@dataclass(frozen=True, eq=False, kw_only=True)
class SampleReport(Answer):
    """What is known of a sample image."""

    file: str
    label: int | None
    """None where the image shows none of the classes, or several."""
    class_name: str
    licence: str
    source: str


@dataclass(frozen=True, eq=False, kw_only=True)
class SamplesAnswer(Answer):
    """The sample images of one bundle."""

    model: str
    samples: list[SampleReport]


def structure(kind: type[T], members: Any) -> T:
    """An answer of its JSON; members that this version does not know are left out.

    Raises:
        InvalidAnswer: it lacks a member, or has one of another kind.
    """
    invalid = InvalidAnswer(f"this is no {kind.__name__} of a CapsNet service")
    if not isinstance(members, dict):
        raise invalid
    try:
        return _CONVERTER.structure(members, kind)
    except (BaseValidationError, ValueError, TypeError, KeyError) as error:
        raise invalid from error


def read_png(content: bytes) -> Image.Image:
    """An image of its file.

    Raises:
        InvalidAnswer: it is no image, or ends early.
    """
    try:
        image = Image.open(io.BytesIO(content))
        image.load()
    except (OSError, ValueError, SyntaxError) as error:
        raise InvalidAnswer("the answer is no image") from error
    return image


def _read_data_url(url: str, _: object) -> Image.Image:
    return read_png(base64.b64decode(url.partition(",")[2]))


def _write_data_url(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _is_array(kind: Any) -> bool:
    return kind is np.ndarray or getattr(kind, "__origin__", None) is np.ndarray


def _is_image(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Image.Image)


def _converter() -> Converter:
    converter = Converter()
    converter.register_structure_hook_func(_is_array, lambda one, _: np.asarray(one, np.float64))
    converter.register_structure_hook_func(_is_image, _read_data_url)
    converter.register_structure_hook(Problem, lambda members, _: Problem.from_dict(members))
    converter.register_unstructure_hook_func(_is_array, lambda one: one.tolist())
    converter.register_unstructure_hook_func(_is_image, _write_data_url)
    converter.register_unstructure_hook(Problem, lambda problem: problem.to_dict())
    return converter


_CONVERTER = _converter()
