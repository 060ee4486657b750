"""Answers and methods, written by `make generate` from the OpenAPI document.

The decorators of the methods send the requests; see `capsnet.methods`.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from numpy.typing import ArrayLike
from PIL import Image

from capsnet.answers import Answer, Floats
from capsnet.errors import Problem
from capsnet.images import ImageLike
from capsnet.methods import each, one_or_all, route

__all__ = [
    "CapsuleAnswer",
    "CapsuleHealth",
    "CouplingHealth",
    "DecodeAnswer",
    "DescribeAnswer",
    "Described",
    "DirectionReport",
    "EquivarianceAnswer",
    "Explained",
    "FailedPrediction",
    "FitReport",
    "HealthAnswer",
    "HeatMaps",
    "HiddenIteration",
    "HiddenLayer",
    "Limits",
    "ModelAnswer",
    "ModelSummary",
    "ModelsAnswer",
    "MorphAnswer",
    "MovedValue",
    "Neighbour",
    "NeighboursAnswer",
    "NoveltyReport",
    "OcclusionAnswer",
    "PerturbAnswer",
    "Prediction",
    "Prototype",
    "ReadValue",
    "ReconstructAnswer",
    "Rival",
    "RivalsAnswer",
    "RoutingAnswer",
    "RoutingIteration",
    "RoutingOffAnswer",
    "RoutingVariant",
    "SampleReport",
    "SamplesAnswer",
    "Segment",
    "SegmentAnswer",
    "SetLabel",
    "SweepAnswer",
    "SweptDirection",
    "Votes",
]

Fit: TypeAlias = Literal["auto", "none", "stretch", "crop", "digit", "pair"]

Polarity: TypeAlias = Literal["auto", "light-on-dark", "dark-on-light"]

By: TypeAlias = Literal["direction", "dimension"]

Transform: TypeAlias = Literal["shift-x", "shift-y", "turn", "scale"]

Dataset: TypeAlias = Literal["mnist", "fashion-mnist"]


class ModelAnswer(Answer):
    """The name and version of the model that answers."""

    model: str
    version: str
    """Version of the weights."""
    notes: list[str] | None = None
    """Sentences on what limits this answer; left out if there are none."""


class CapsuleAnswer(ModelAnswer):
    """The class that the answer is about, and its presence."""

    label: int
    class_name: str
    length: float
    """Confidence that the class is present, in [0, 1]."""
    fit: FitReport


class Prediction(ModelAnswer):
    """The network's answer for one image, and the model that answers."""

    label: int
    class_name: str
    length: float
    """Confidence in the label, in [0, 1]."""
    lengths: Floats
    """Presence of all K classes, by label: see `presence` of `GET /models`."""
    probability: float | None = None
    """With coverage=: calibrated chance that the label is right, for images like those of the
    calibration."""
    labels: list[SetLabel] | None = None
    """With coverage=: a set of labels that holds the true label with this coverage, the most
    probable label first."""
    poses: Floats | None = None
    """All K poses, with poses=true."""
    novelty: NoveltyReport | None = None
    """With novelty=true."""
    fit: FitReport


class FailedPrediction(Answer):
    """The reason why one image of several has no prediction."""

    problem: Problem


class DescribeAnswer(CapsuleAnswer):
    """An image in words and units."""

    readings: list[ReadValue]
    """What is read from the pose of the class."""
    sentence: str
    """The most unusual readings, in words; of both digits."""
    second: Described | None = None
    """The second digit of a pair."""


class ReconstructAnswer(CapsuleAnswer):
    """The reconstruction of one class's pose."""

    input: Image.Image
    """The image as the network saw it."""
    reconstruction: Image.Image
    error: float
    """Mean squared error, all channels, pixels in [0, 1]."""


class PerturbAnswer(CapsuleAnswer):
    """An image before and after its pose was moved."""

    dim: int | None = None
    direction: str | None = None
    delta: float
    value: MovedValue | None = None
    """With `direction`."""
    pose: Floats
    """The class capsule, D numbers."""
    perturbed_pose: Floats
    """The class capsule, D numbers."""
    reconstruction: Image.Image
    perturbed: Image.Image


class DecodeAnswer(ModelAnswer):
    """The images of some poses."""

    label: int
    class_name: str
    images: list[Image.Image]
    """An image for each pose, in order."""
    measured: dict[str, Any]
    """What is measured on each image, less the mean by which drawings exceed their images, by
    the name of the direction."""


class SweepAnswer(CapsuleAnswer):
    """The decoded images: one row for each direction or dimension, one column for each delta."""

    pose: Floats
    """The class capsule, D numbers."""
    by: str
    dims: list[int]
    """The rows by dimension; else empty."""
    directions: list[SweptDirection]
    """The rows by direction; else empty."""
    deltas: Floats
    """The columns. Along directions: shares of the way to `low` and `high`."""
    rows: list[str]
    """The rows in words."""
    images: list[list[Image.Image]]
    """Rows as in `rows`, columns as in `deltas`."""


class RoutingAnswer(CapsuleAnswer):
    """The state of routing after each iteration.

    Input capsule i has type t, row y and column x: i = (t * rows + y) * columns + x.
    """

    types: int
    """T, types of the capsules that vote for classes."""
    rows: int
    """Rows of the grid of these capsules."""
    columns: int
    iterations: list[RoutingIteration]
    heat_maps: HeatMaps
    votes: Votes
    layers: list[HiddenLayer]
    """Routed layers before the last one, if any."""


class RoutingOffAnswer(CapsuleAnswer):
    """The answers of the same votes with other couplings. `length` is that of the routed answer."""

    variants: list[RoutingVariant]
    """The first is the routed answer."""
    changed: bool
    """Whether the labels of any variant differ."""


class EquivarianceAnswer(CapsuleAnswer):
    """The length and pose of a class while the image is transformed.

    Lists over steps follow `values`.
    """

    transform: str
    values: Floats
    lengths: Floats
    """Presence of the class at each step."""
    labels: list[int]
    """The most present class at each step."""
    angles_deg: Floats | None = None
    """Angle to the untransformed pose at each step; None without poses."""
    poses: Floats | None = None
    """Pose of the class at each step; None without poses."""
    points: Floats | None = None
    """(steps, 2), centred: the path of the pose, in the plane in which it varies most; None
    without poses."""
    explained: Floats | None = None
    """(2,), share of the pose's variance along x and along y of `points`; None without poses."""
    straightness: float | None = None
    """Distance between the ends of the path, divided by the length of the path, in all
    dimensions, from 0 to 1; None without poses."""


class OcclusionAnswer(CapsuleAnswer):
    """The change of presence while a patch of background hides each part of the image."""

    patch: int
    """Side of the patch, pixels."""
    stride: int
    """Pixels between neighbouring places."""
    value: float
    """Presence without the patch."""
    map: Floats
    """(H, W): the mean change of the value at each pixel, over all places of the patch that
    cover the pixel; negative where the value falls."""
    lowest: float
    """The value at the place where it falls most."""
    highest: float
    """The value at the place where it rises most."""
    labels: list[list[int]]
    """(rows, columns) of places: the most present class with the patch there."""


class SegmentAnswer(ModelAnswer):
    """An image of overlapping digits, taken apart."""

    segments: list[Segment]
    """The longest capsule first."""
    explained_ink: float
    """Share of the ink that is in any mask."""
    fit: FitReport


class RivalsAnswer(CapsuleAnswer):
    """The reconstructions of several classes, the most present class first."""

    input: Image.Image
    """The image as the network saw it."""
    classes: list[Rival]
    """The classes, the most present first."""
    best_drawn: int
    """The label with the smallest error among these."""


class MorphAnswer(CapsuleAnswer):
    """Frames between the poses of two images. `length` and `fit` are of the first image."""

    second_length: float
    """Presence of the class in the second image."""
    second_fit: FitReport
    angle_deg: float
    """Between the two poses."""
    lengths: Floats
    """(steps,), presence of the class in each frame, encoded."""
    labels: list[int]
    """The most present class of each frame."""
    frames: list[Image.Image]
    animation: str
    """The frames there and back: an animated WebP as data:image/webp;base64,…"""


class NeighboursAnswer(CapsuleAnswer):
    """Training images of a class, ordered by the distance of their poses."""

    images: str
    """Which images were searched."""
    licence: str
    """Licence of the images; empty if none is stated."""
    source: str
    drawn: bool
    """Whether images are drawn by the decoder from their poses, because the bundle does not
    contain the images."""
    typical_distance: float
    """Median distance between a training image of the class and the nearest other one."""
    neighbours: list[Neighbour]
    """Training images of the class, the nearest first."""
    prototypes: list[Prototype]
    """Typical training images of the class, the one with the largest share first."""


class ModelsAnswer(Answer):
    """The loaded models and the limits of a request."""

    provider: str
    """The onnxruntime provider in use."""
    limits: Limits
    models: list[ModelSummary]


class HealthAnswer(ModelAnswer):
    """The health of the capsules of a model, measured on training images."""

    images: str
    """The images that it was measured on."""
    count: int
    """The number of those images."""
    capsules: list[CapsuleHealth]
    """The capsules of each layer."""
    couplings: list[CouplingHealth]
    """The couplings of each routed layer."""
    parse_trees: float
    """Mean number of different parse trees of a class."""
    images_per_class: float
    """The largest possible `parse_trees`."""
    negated_changed_percent: float | None = None
    """Percentage of answers that change if all input capsules change their sign; None where the
    family does not allow that."""
    negated_presence_change: float | None = None
    """Mean change of presence if all input capsules change their sign."""
    effective_dims: float
    """Mean effective dimensions of a class's poses."""
    class_dim: int
    """D, the numbers of a pose."""


class SamplesAnswer(Answer):
    """The samples of one bundle, at most ten."""

    model: str
    samples: list[SampleReport]


class FitReport(Answer):
    """The steps that were applied to the image before the network saw it."""

    fit: str
    polarity: str | None = None
    """Polarity of the upload; None for photographs."""
    box: tuple[int, int, int, int] | None = None
    """Left, top, right and bottom of the strokes, in pixels of the decoded image; None where
    they were not looked for or nothing was found."""


class SetLabel(Answer):
    """A label in a set."""

    label: int
    class_name: str


class NoveltyReport(Answer):
    """The novelty scores of an image: how unlike the training images it is.

    Each score is the share of training images that are less unusual: 0.99 means 99 % of them.
    """

    novel: bool
    """Whether 95 % of training images have a lower score."""
    score: float
    """The highest of the four scores below."""
    length_score: float
    """The score of the longest capsule's length."""
    margin_score: float
    """The score of the longest capsule's lead over the second longest one."""
    error_score: float
    """The score of the error of the longest capsule's reconstruction."""
    distance_score: float | None = None
    """The score of the Mahalanobis distance of the poses."""
    error: float
    """Error of the reconstruction y of image x: sum((x-y)^2) / (sum(x^2) + 1)."""


class ReadValue(Answer):
    """A value that is read from a pose."""

    name: str
    value: float
    unit: str
    """`px`, `degrees`; empty for shares of the full brightness."""
    mean_error: float
    """Mean error, on images outside the fit, in the unit."""
    percentile: float
    """Percentage of images of the class with a lower value, from 5 to 95."""
    low: float
    """5 % of the class's images stay below."""
    high: float
    """95 % of the class's images stay below."""


class Described(Answer):
    """One object in words."""

    label: int
    class_name: str
    length: float
    readings: list[ReadValue]
    sentence: str


class MovedValue(Answer):
    """What a direction is named after, before and after the move."""

    unit: str
    read: float
    """Read from the pose of the image."""
    asked: float
    """What was read, plus `delta`."""
    measured: float | None = None
    """Measured on the drawing of the moved pose, less the mean by which drawings exceed their
    images; None for factors and principal directions, which no drawing shows."""


class SweptDirection(Answer):
    """A row of a sweep by directions."""

    name: str
    unit: str
    low: float
    """The value that is asked for in the first column."""
    high: float
    """The value that is asked for in the last column."""


class RoutingIteration(Answer):
    """The state after one iteration. Lists over classes are by label."""

    lengths: Floats
    """(K,), presence of the classes."""
    agreement: Floats
    """(K,), -1 to 1: how well the votes agree."""
    entropy: float | None = None
    """Normalised entropy of the couplings, from 0 to 1: how undecided the input capsules are.
    None where couplings are no distribution over the classes."""
    couplings: Floats | None = None
    """(K, I); with detail=true. The weight of each vote; in self-attention it may be negative."""
    logits: Floats | None = None
    """(K, I); with detail=true."""


class HeatMaps(Answer):
    """Maps of support: each cell's part of a class's length before its squash; may be negative."""

    grid: Floats
    """(R, K, rows, columns), from the top."""
    types: Floats
    """(R, K, T): summed over the grid."""


class Votes(Answer):
    """The votes for the label in the plane in which they differ most."""

    explained: Floats
    """Share of their variance along x and along y."""
    points: Floats | None = None
    """(I, 2), centred; with detail=true."""
    couplings: Floats | None = None
    """(I,), the last; with detail=true."""


class HiddenLayer(Answer):
    """A routed layer before the last one."""

    name: str
    iterations: list[HiddenIteration]


class RoutingVariant(Answer):
    """The answer with one kind of couplings."""

    name: str
    title: str
    """In words."""
    labels: list[int]
    """The most present class; for pairs of digits the two most present ones, by label."""
    class_names: list[str]
    """Of the labels."""
    lengths: Floats
    """(K,), presence of the classes."""
    changed: bool
    """Whether `labels` differ from the routed answer."""


class Segment(Answer):
    """One detected class."""

    label: int
    class_name: str
    length: float
    """Length of the capsule, in [0, 1)."""
    mask: Image.Image
    """The returned digits divide the ink around each pixel. White where this digit gets at least
    `mask_threshold` of it. A pixel may belong to several digits."""
    reconstruction: Image.Image
    """The digit's capsule, decoded alone."""
    ink_share: float
    """Share of the ink in the mask; shared ink counts in each."""


class Rival(Answer):
    """The reconstruction of one class and its error."""

    label: int
    class_name: str
    length: float
    """Presence of the class, in [0, 1]."""
    error: float
    """Share of the image x that its reconstruction y misses: Σ(x-y)² / (Σx² + 1)."""
    reconstruction: Image.Image


class Neighbour(Answer):
    """A training image of the class."""

    distance: float
    """Distance of the two poses, in standard deviations of the class's poses."""
    image: Image.Image


class Prototype(Answer):
    """A training image that stands for others of the class."""

    distance: float
    """Distance of the two poses, in standard deviations of the class's poses."""
    image: Image.Image
    share: float
    """Share of the class's images whose nearest prototype this is."""


class Limits(Answer):
    """The limits of one request."""

    images: int
    """Most images of one request to /classify."""
    body_bytes: int


class ModelSummary(Answer):
    """A model that the service has loaded."""

    name: str
    version: str
    """Version of the weights."""
    family: str
    """The kind of network."""
    family_title: str
    """The name of the family, in a few words."""
    dataset: str
    class_names: list[str]
    channels: int
    """Channels of the network's images: 1 for grey, 3 for colour."""
    height: int
    """Height of the network's images, in pixels."""
    width: int
    any_size: bool
    """Whether /classify also takes larger images, `fit=none`."""
    class_dim: int
    """D, the size of a pose; 0 where there are none."""
    presence: str
    """What `length` and `lengths` in answers are."""
    offers: list[str]
    """`decode`: routes that reconstruct; `trace`: /routing."""
    default: bool
    """Whether this model answers requests without `model`."""
    metrics: dict[str, Any]
    calibrated: bool
    """Whether /classify takes `coverage`."""
    explained: Explained | None = None
    """The share of the images' variance that poses explain, compared with PCA; None if it was
    not measured."""
    directions: list[DirectionReport]
    """What /perturb moves poses along; `GET /models/{name}` has each class's own."""
    notes: dict[str, Any]
    """What limits the answers of some views, in sentences, by the view's name."""


class CapsuleHealth(Answer):
    """The capsules of one layer."""

    layer: str
    capsules: int
    starved_percent: float
    """The percentage of capsules that are present in none of the images."""
    mean_presence: float
    """The mean presence of all capsules."""


class CouplingHealth(Answer):
    """The couplings of one routed layer; entropy and polarisation by iteration."""

    layer: str
    entropy: Floats
    """0: each capsule serves one parent. 1: it serves all alike."""
    polarisation: Floats
    """0: couplings are uniform. 1: each capsule serves one parent."""
    within_class: float
    """The standard deviation over images of one class, as a share of the mean coupling."""
    between_classes: float
    """The standard deviation of the classes' mean couplings, as a share of the mean coupling."""


class SampleReport(Answer):
    """The class, source and licence of one sample."""

    file: str
    label: int | None = None
    """None where the picture shows none of the classes, or several."""
    class_name: str
    """What the picture shows."""
    licence: str
    source: str
    """The maker of the picture, or its data set."""


class HiddenIteration(Answer):
    """A layer of convolutional capsules after one iteration."""

    activations: Floats
    """(T',): means over the layer's grid."""
    maps: Floats | None = None
    """(T', rows, columns); with detail=true."""
    assignments: Floats
    """(T', T): shares of each type of input."""


class Explained(Answer):
    """Shares of the variance of images that reconstructions explain, and those of PCA.

    The share is 1 - sum |x - y|^2 / sum |x - m|^2 over all pixels of all images. Here y is the
    reconstruction of image x, and m is the mean training image.
    """

    images: str
    """The images that are explained, in words."""
    count: int
    """The number of those images; for pairs, of their objects."""
    pose: float
    """By the decoded pose of the most present class; for pairs, of the labels."""
    class_mean: float
    """By the mean training image of that class."""
    pca: dict[str, Any]
    """By principal components of the training images of the class; the key is their number."""
    class_dim: int
    """The numbers of a pose, D."""


class DirectionReport(Answer):
    """A direction of poses that /perturb takes, over all classes that have it."""

    name: str
    unit: str
    """The unit of `delta`; empty for shares of the full brightness."""
    labels: list[int]
    """The classes that have it."""
    low: float
    """5 % of the images of the class with the lowest values."""
    high: float
    """95 % of the images of the class with the highest values."""
    got: float
    """The mean change of the drawing, for one that is asked for."""
    same_way: float
    """The share of images whose drawing moves as asked."""
    largest_other: float
    """The largest mean change of another measure, in its standard deviations."""
    r2: float
    """The share of the variance that reading a pose explains."""
    mean_error: float
    """The mean error of reading a pose, in the unit."""


class ViewMethods:
    """The views, which are also drawn.

    Args:
        model: A bundle of `GET /models`.
        fit: `none` requires the network's size, or a larger one in `/classify` if the model has
            `any_size`; `stretch` scales the whole image; `crop` takes the centre; `digit` and
            `pair` find the strokes of one or two digits; `auto` is `none` if the size matches,
            else the rule `preprocess` of the model; by default `"auto"`.
        polarity: `auto` detects it; not used for photographs; by default `"auto"`.
        timeout_s: Deadline in seconds, instead of the client's.
        image: A path, the bytes of a file, an open file, a Pillow image, or an array (H, W), (H,
            W, C) or (C, H, W), of 0 to 255 or of floats in [0, 1].
        target: The label of a class. The default is the class of the longest capsule.
        name: A bundle of `GET /models`.
    """

    @route("POST", "/reconstruct", ReconstructAnswer, images=["image"])
    def reconstruct(
        self,
        image: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        timeout_s: float | None = None,
    ) -> ReconstructAnswer:
        """Reconstruct the image from the pose of one class capsule."""

    @route("POST", "/perturb", PerturbAnswer, images=["image"])
    def perturb(
        self,
        image: ImageLike,
        delta: float,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        direction: str | None = None,
        dim: int | None = None,
        timeout_s: float | None = None,
    ) -> PerturbAnswer:
        """Move a pose along a direction or a dimension, and decode it.

        A direction, such as `slant`, changes what its name says much more than the rest. `delta`
        is in its unit.

        Args:
            delta: The change: along a direction in its unit, such as degrees, positive to the
                right; of a dimension -1 to 1, in the paper -0.25 to 0.25.
            direction: The direction to move along, such as `slant`: see `directions` of `GET
                /models`. Give either this or `dim`.
            dim: The pose dimension to move, counted from 0.
        """

    @route("POST", "/decode", DecodeAnswer, json=["poses", "label"])
    def decode(
        self,
        poses: ArrayLike,
        label: int,
        *,
        model: str | None = None,
        timeout_s: float | None = None,
    ) -> DecodeAnswer:
        """Decode one pose of a class, or up to 256, into images.

        Args:
            poses: One (D,) or several (N, D): D numbers, each from -10 to 10.
            label: Class of the poses.
        """

    @route("POST", "/sweep", SweepAnswer, images=["image"])
    def sweep(
        self,
        image: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        by: By | None = None,
        dims: Sequence[int] | None = None,
        start: float | None = None,
        stop: float | None = None,
        step: float | None = None,
        timeout_s: float | None = None,
    ) -> SweepAnswer:
        """Move a pose step by step along directions or dimensions.

        Args:
            by: The rows. The default is `direction` where the class has any, unless `dims`,
                `start`, `stop` or `step` is given.
            dims: Dimensions, counted from 0, each once; default: all.
            start: First delta of a dimension; by default -0.25.
            stop: Last delta of a dimension; by default 0.25.
            step: Distance between two deltas; by default 0.05.
        """

    @route("POST", "/routing", RoutingAnswer, images=["image"])
    def routing(
        self,
        image: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        detail: bool | None = None,
        timeout_s: float | None = None,
    ) -> RoutingAnswer:
        """Trace routing: couplings, agreement, heat maps.

        Args:
            detail: `false` leaves out arrays with a number for each input capsule (couplings,
                logits and votes: half a megabyte for the paper's network) and maps of hidden
                layers; by default `True`.
        """

    @route("POST", "/routing-off", RoutingOffAnswer, images=["image"])
    def routing_off(
        self,
        image: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        timeout_s: float | None = None,
    ) -> RoutingOffAnswer:
        """Ask again with routing switched off.

        The presence is computed from the same votes in up to three variants: with uniform
        couplings; after one update of the couplings, if the network has three iterations or
        more; without the coupling bias, if it has one. Only the routing of the last layer is
        switched off. If the answer changes, it depended on routing. A network that is trained
        without routing may still be correct.
        """

    @route("POST", "/equivariance", EquivarianceAnswer, images=["image"])
    def equivariance(
        self,
        image: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        transform: Transform | None = None,
        start: float | None = None,
        stop: float | None = None,
        steps: int | None = None,
        timeout_s: float | None = None,
    ) -> EquivarianceAnswer:
        """Transform an image step by step and ask the network each time.

        In an equivariant network, the length stays and the pose changes with the image. The
        drawing projects the path of the pose on the plane of the two directions in which the
        pose varies most. Each drawing has a plane of its own. A straight path means that the
        transform moves the pose in one direction. It does not mean that the prediction is
        correct, or that the presence stays.

        Args:
            transform: What is done to the fitted image; by default `"turn"`.
            start: The first value: pixels to the right or down, degrees counter-clockwise, or a
                factor; by default -6, -60 or 0.6.
            stop: The last value, above `start`; by default 6, 60 or 1.4.
            steps: Number of images, both ends included; by default `13`.
        """

    @route("POST", "/occlusion", OcclusionAnswer, images=["image"])
    def occlusion(
        self,
        image: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        patch: int | None = None,
        timeout_s: float | None = None,
    ) -> OcclusionAnswer:
        """Hide one patch of the image at a time and encode each result.

        For strokes the patch is black, and for photographs it has their mean colour. The map
        shows where hiding a part of the image changes the presence. It does not show what the
        class consists of. A patch adds edges that no training image had. If two strokes give the
        same evidence, hiding one of them may change nothing.

        Args:
            patch: The side of the patch, in pixels of the network's image. The default has 1/25
                of the image's area.
        """

    @route("POST", "/segment", SegmentAnswer, images=["image"])
    def segment(
        self,
        image: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        count: int | Literal["auto"] | None = None,
        timeout_s: float | None = None,
    ) -> SegmentAnswer:
        """Segment overlapping digits (paper, section 6).

        Args:
            model: A bundle for overlapping digits.
            count: Number of classes to return, longest capsules first. `auto` tries the classes
                in this order. It returns a class if its capsule is long and its reconstruction
                explains enough ink that no earlier class explains. It may return none; by
                default `2`.
        """

    @route("POST", "/rivals", RivalsAnswer, images=["image"])
    def rivals(
        self,
        image: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        count: int | None = None,
        timeout_s: float | None = None,
    ) -> RivalsAnswer:
        """Decode the capsules of several classes of one image.

        If the decoder learnt to draw absent classes, a high error means that the class cannot
        explain the image. The error does not measure how close the class came to winning.

        Args:
            count: Number of classes, the most present first. The default is 10, or 2 if the
                decoder has not learnt to draw absent classes.
        """

    @route("POST", "/morph", MorphAnswer, images=["first", "second"])
    def morph(
        self,
        first: ImageLike,
        second: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        steps: int | None = None,
        timeout_s: float | None = None,
    ) -> MorphAnswer:
        """Turn the pose of one image into that of another.

        The pose turns at a constant speed, and its length changes linearly. Each frame is
        encoded again. If its presence is low, the encoder does not recognise what the decoder
        draws. Frames may be unlike all training images.

        Args:
            first: The first image; see `image`.
            second: The second image; see `image`.
            steps: Number of frames, both ends included; by default `9`.
        """

    @route("POST", "/neighbours", NeighboursAnswer, images=["image"])
    def neighbours(
        self,
        image: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        count: int | None = None,
        timeout_s: float | None = None,
    ) -> NeighboursAnswer:
        """Find the training images of a class with the nearest poses.

        Only images of the chosen class are searched. For example, if the image shows an 8 and
        you choose the class 3, every result is a 3. The images do not explain the answer,
        because the network compares no images. Prototypes represent the class: they are chosen
        so that every image has a near prototype.

        Args:
            count: Number of training images, the nearest first; by default `6`.
        """

    @route("GET", "/models/{name}/health", HealthAnswer)
    def show_health(self, name: str, *, timeout_s: float | None = None) -> HealthAnswer:
        """Show the health of a network.

        Each number is defined in the documentation, on the page "Health of a network".
        """


class Methods(ViewMethods):
    """What clients can ask."""

    @one_or_all("/classify", "predictions", Prediction, FailedPrediction)
    def classify(
        self,
        images: ImageLike | Iterable[ImageLike],
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        poses: bool | None = None,
        novelty: bool | None = None,
        coverage: float | None = None,
        timeout_s: float | None = None,
    ) -> Prediction | list[Prediction | FailedPrediction]:
        """Classify images by the lengths of the class capsules.

        For several images, the answer has an entry for each, in order. If one of them cannot be
        read, its entry has a `problem` in place of the prediction.

        Args:
            images: A path, the bytes of a file, an open file, a Pillow image, or an array (H,
                W), (H, W, C) or (C, H, W), of 0 to 255 or of floats in [0, 1]; or a list of
                these, answered by a list in the same order.
            poses: Adds the poses of all classes; by default `False`.
            novelty: Adds the novelty score; by default `False`.
            coverage: Adds the probability, and a set of labels that holds the true one with this
                coverage, such as 0.95.
        """

    @each("/classify", "predictions", Prediction, FailedPrediction)
    def classify_each(
        self,
        images: Iterable[ImageLike],
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        poses: bool | None = None,
        novelty: bool | None = None,
        coverage: float | None = None,
        timeout_s: float | None = None,
    ) -> Iterator[Prediction | FailedPrediction]:
        """Classify images by the lengths of the class capsules.

        Images are read while answers arrive. They are sent in several requests at a time, each
        of a size that the service accepts. See `classify` for the parameters.
        """

    @route("POST", "/describe", DescribeAnswer, images=["image"])
    def describe(
        self,
        image: ImageLike,
        *,
        model: str | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        timeout_s: float | None = None,
    ) -> DescribeAnswer:
        """Describe an image in words and units, read from its pose."""

    @route("GET", "/samples/{label}.png", Image.Image)
    def sample(
        self, label: int, *, dataset: Dataset | None = None, timeout_s: float | None = None
    ) -> Image.Image:
        """Get a sample image of a class.

        Args:
            label: The class of the sample.
            dataset: The data set of the sample; by default `"mnist"`.
        """

    @route("POST", "/overlay", Image.Image, images=["first", "second"])
    def overlay(
        self,
        first: ImageLike,
        second: ImageLike,
        *,
        dx: int | None = None,
        dy: int | None = None,
        scale: int | None = None,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        timeout_s: float | None = None,
    ) -> Image.Image:
        """Overlay two images of digits, for /segment.

        Args:
            first: The first image; see `image`.
            second: The second image; see `image`.
            dx: Pixels by which the second digit lies right of the first; by default `4`.
            dy: Pixels by which the second digit lies below the first; by default `4`.
            scale: PNG: each pixel becomes scale x scale, or less in a very large drawing; by
                default `1`.
        """

    @route("GET", "/models", ModelsAnswer)
    def models(self, *, timeout_s: float | None = None) -> ModelsAnswer:
        """List the loaded models."""

    @route("GET", "/models/{name}", dict[str, Any])
    def model(self, name: str, *, timeout_s: float | None = None) -> dict[str, Any]:
        """Show a model's manifest."""

    @route("GET", "/models/{name}/samples", SamplesAnswer)
    def samples(self, name: str, *, timeout_s: float | None = None) -> SamplesAnswer:
        """List the sample images of a model.

        They are the bundle's own or, where it has none, those of its data set.
        """

    @route("GET", "/models/{name}/samples/{file}", Image.Image)
    def sample_of(self, name: str, file: str, *, timeout_s: float | None = None) -> Image.Image:
        """Get a sample image of a model.

        Args:
            file: A file of `/models/{name}/samples`.
        """

    @route("POST", "/models/reload", ModelsAnswer)
    def reload(self, *, timeout_s: float | None = None) -> ModelsAnswer:
        """Reload all models.

        The key files are read first, and all workers use the new keys. Then each model is opened
        in a process of its own, workers load the models, and these replace the old ones. If a
        model cannot be loaded, the old models stay.
        """
