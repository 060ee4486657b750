"""The signatures of the methods that `methods.py` makes, written by `make generate`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, overload

from numpy.typing import ArrayLike

from model.loaded import Picture
from model.preprocess import Fit, Polarity
from model.views.classify import FailedPrediction, PredictionAnswer
from model.views.decode import DecodeAnswer
from model.views.describe import DescribeAnswer
from model.views.equivariance import EquivarianceAnswer, Transform
from model.views.morph import MorphAnswer
from model.views.neighbours import NeighboursAnswer
from model.views.occlusion import OcclusionAnswer
from model.views.perturb import PerturbAnswer
from model.views.reconstruct import ReconstructAnswer
from model.views.rivals import RivalsAnswer
from model.views.routing import RoutingAnswer
from model.views.routing_off import RoutingOffAnswer
from model.views.segment import SegmentAnswer
from model.views.sweep import By, SweepAnswer
from model.views.view import A, Q, View

class ViewMethods:
    """What one may ask of a network: the methods of `LoadedBundle`.

    Args:
        fit: `none` requires the network's size, or a larger one in `/classify` if the model has
            `any_size`; `stretch` scales the whole image; `crop` takes the centre; `digit` and
            `pair` find the strokes of one or two digits; `auto` is `none` if the size matches,
            else the rule `preprocess` of the model; by default `"auto"`.
        polarity: `auto` detects it; not used for photographs; by default `"auto"`.
        image: A path, the bytes of a file, an open file, a Pillow image, or an array (H, W), (H,
            W, C) or (C, H, W), of 0 to 255 or of floats in [0, 1].
        target: The label of a class. The default is the class of the longest capsule.
    """

    def _ask(
        self, view: View[Q, A], pictures: Sequence[Picture], parameters: Mapping[str, object]
    ) -> A: ...
    def _classify(
        self, images: Picture | Iterable[Picture], parameters: Mapping[str, object]
    ) -> PredictionAnswer | list[PredictionAnswer | FailedPrediction]: ...
    @overload
    def classify(  # type: ignore[overload-overlap]  # one path is no list of characters
        self,
        images: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        poses: bool | None = None,
        novelty: bool | None = None,
        coverage: float | None = None,
    ) -> PredictionAnswer:
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

    @overload
    def classify(
        self,
        images: Iterable[Picture],
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        poses: bool | None = None,
        novelty: bool | None = None,
        coverage: float | None = None,
    ) -> list[PredictionAnswer | FailedPrediction]:
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

    def describe(
        self,
        image: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
    ) -> DescribeAnswer:
        """Describe an image in words and units, read from its pose."""

    def reconstruct(
        self,
        image: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
    ) -> ReconstructAnswer:
        """Reconstruct the image from the pose of one class capsule."""

    def perturb(
        self,
        image: Picture,
        delta: float,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        direction: str | None = None,
        dim: int | None = None,
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

    def decode(self, poses: ArrayLike, label: int) -> DecodeAnswer:
        """Decode one pose of a class, or up to 256, into images.

        Args:
            poses: One (D,) or several (N, D): D numbers, each from -10 to 10.
            label: Class of the poses.
        """

    def sweep(
        self,
        image: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        by: By | None = None,
        dims: Sequence[int] | None = None,
        start: float | None = None,
        stop: float | None = None,
        step: float | None = None,
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

    def routing(
        self,
        image: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        detail: bool | None = None,
    ) -> RoutingAnswer:
        """Trace routing: couplings, agreement, heat maps.

        Args:
            detail: `false` leaves out arrays with a number for each input capsule (couplings,
                logits and votes: half a megabyte for the paper's network) and maps of hidden
                layers; by default `True`.
        """

    def routing_off(
        self,
        image: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
    ) -> RoutingOffAnswer:
        """Ask again with routing switched off.

        The presence is computed from the same votes in up to three variants: with uniform
        couplings; after one update of the couplings, if the network has three iterations or
        more; without the coupling bias, if it has one. Only the routing of the last layer is
        switched off. If the answer changes, it depended on routing. A network that is trained
        without routing may still be correct.
        """

    def equivariance(
        self,
        image: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        transform: Transform | None = None,
        start: float | None = None,
        stop: float | None = None,
        steps: int | None = None,
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

    def occlusion(
        self,
        image: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        patch: int | None = None,
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

    def segment(
        self,
        image: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        count: int | Literal["auto"] | None = None,
    ) -> SegmentAnswer:
        """Segment overlapping digits (paper, section 6).

        Args:
            count: Number of classes to return, longest capsules first. `auto` tries the classes
                in this order. It returns a class if its capsule is long and its reconstruction
                explains enough ink that no earlier class explains. It may return none; by
                default `2`.
        """

    def rivals(
        self,
        image: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        count: int | None = None,
    ) -> RivalsAnswer:
        """Decode the capsules of several classes of one image.

        If the decoder learnt to draw absent classes, a high error means that the class cannot
        explain the image. The error does not measure how close the class came to winning.

        Args:
            count: Number of classes, the most present first. The default is 10, or 2 if the
                decoder has not learnt to draw absent classes.
        """

    def morph(
        self,
        first: Picture,
        second: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        steps: int | None = None,
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

    def neighbours(
        self,
        image: Picture,
        *,
        fit: Fit | None = None,
        polarity: Polarity | None = None,
        target: int | None = None,
        count: int | None = None,
    ) -> NeighboursAnswer:
        """Find the training images of a class with the nearest poses.

        Only images of the chosen class are searched. For example, if the image shows an 8 and
        you choose the class 3, every result is a 3. The images do not explain the answer,
        because the network compares no images. Prototypes represent the class: they are chosen
        so that every image has a near prototype.

        Args:
            count: Number of training images, the nearest first; by default `6`.
        """
