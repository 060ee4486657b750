"""A loaded bundle for notebooks: each view as a method, and its graphs with checked arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from typing_extensions import TypeIs

from model.bundle import Bundle, Manifest
from model.errors import InvalidParameter, Problem, unwrap
from model.outputs import Encoding, Graph, Row, Trace
from model.preprocess import (
    WHITE,
    Fit,
    Floats,
    Polarity,
    Prepared,
    load_image,
    open_image,
    prepare,
    to_unit,
)
from model.runtime import Device, Runtime
from model.views.methods import ViewMethods
from model.views.net import Net, require, run
from model.views.view import A, PictureQuery, Q, View, read_query

if TYPE_CHECKING:
    from model.views.classify import FailedPrediction, PredictionAnswer

P = ParamSpec("P")
T = TypeVar("T")
Picture: TypeAlias = (
    Image.Image | str | PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | NDArray[Any]
)
"""A Pillow image, a path, the bytes of an image file, an open binary file, or an array: (H, W),
(H, W, C) or (C, H, W), of whole numbers from 0 to 255 or of floats in [0, 1]. Networks of other
numbers of channels than 1 and 3 take arrays (H, W, C) and `.npy` files alone."""
_SLACK = 1e-3
"""The tolerance beyond [0, 1], for rounding."""
_TOGETHER = 256
"""This many pictures are classified at once, so that a million take no more memory."""


@dataclass(frozen=True)
class LocalNet(Net):
    """A network in this process, as views ask it: it never suspends."""

    manifest: Manifest
    runtime: Runtime

    async def compute(self, graph: Graph, rows: Sequence[Row]) -> list[Row]:
        """Compute rows in batches."""
        runtime = self.runtime
        size = runtime.max_decode_rows if graph == "decode" else runtime.max_encode_rows
        return [
            result
            for start in range(0, len(rows), size)
            for result in runtime.compute(graph, rows[start : start + size])
        ]

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function here and now."""
        return work(*args, **kwargs)


class LoadedBundle(ViewMethods):
    """The object that `model.load` returns: a method for each view, and one for each graph.

    Args:
        bundle: what to load.
        device: see `model.load`.
        threads: see `model.load`.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        device: Device = "auto",
        threads: int = 0,
    ) -> None:
        self.runtime = Runtime(bundle, device=device, threads=threads)

    def __repr__(self) -> str:
        return f"LoadedBundle({self.bundle.manifest.name!r}, provider={self.provider!r})"

    @property
    def bundle(self) -> Bundle:
        """The bundle."""
        return self.runtime.bundle

    @property
    def provider(self) -> str:
        """The onnxruntime provider in use."""
        return self.runtime.provider

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the K classes, by label."""
        return self.bundle.manifest.class_names

    def prepare(
        self, picture: Picture, *, fit: Fit = "auto", polarity: Polarity = "auto"
    ) -> Floats:
        """A picture of any size as a batch of one image, (1, C, H, W).

        Raises:
            TypeError: this is no picture.
            ValueError: it cannot be read or fitted; the message says why.
            OSError: the file cannot be read.
        """
        return fit_picture(self.bundle.manifest, picture, fit=fit, polarity=polarity).image[None]

    def encode(self, images: ArrayLike) -> Encoding[Floats]:
        """Encode images (N, C, H, W), floats in [0, 1], whose strokes are light on dark.

        Raises:
            TypeError: these are no floats.
            ValueError: they have another shape or lie outside [0, 1].
        """
        return self.runtime.encode(self._images(images, any_size=self.bundle.manifest.any_size))

    def trace(self, images: ArrayLike) -> Trace[Floats]:
        """Trace the routing of images (N, C, H, W), floats in [0, 1].

        Raises:
            NotOffered: the network has no routing.
            TypeError: these are no floats.
            ValueError: they have another shape or lie outside [0, 1].
        """
        return self.runtime.trace(self._images(images))

    def _ask(
        self,
        view: View[Q, A],
        pictures: Sequence[Picture],
        parameters: Mapping[str, object],
        *,
        alone: bool = True,
    ) -> A:
        """Ask a view of the network, as a service does.

        Args:
            pictures: as many as the view takes.
            parameters: of the view's query. Those that are None have their defaults.
            alone: whether the problem of a picture that fails is raised; otherwise the answer has
                the problem in place of the picture's result.
        """
        net = LocalNet(self.runtime.manifest, self.runtime)
        manifest, query = net.manifest, read_query(view.query, parameters)
        require(manifest, view.needs)
        if view.of_pairs and not manifest.of_pairs:
            detail = f"{manifest.name!r} was not trained on overlapping digits"
            raise InvalidParameter(detail, parameter="model")
        query.check(manifest)
        fitted = [_fit(manifest, picture, query) for picture in pictures]
        return run(view.ask(net, query, *(map(unwrap, fitted) if alone else fitted)))

    def _classify(
        self, images: Picture | Iterable[Picture], parameters: Mapping[str, object]
    ) -> PredictionAnswer | list[PredictionAnswer | FailedPrediction]:
        from model.views.classify import VIEW  # noqa: PLC0415  with the first view

        if is_one(images):
            (outcome,) = self._ask(VIEW, [images], parameters).each()
            return cast("PredictionAnswer", outcome)
        pictures = iter(images)
        outcomes: list[PredictionAnswer | FailedPrediction] = []
        while some := list(islice(pictures, _TOGETHER)):
            outcomes += self._ask(VIEW, some, parameters, alone=False).each()
        return outcomes

    def _images(self, images: ArrayLike, *, any_size: bool = False) -> Floats:
        channels, height, width = self.bundle.manifest.image_shape
        hint = "divide by 255, or let `prepare` read a picture"
        numbers = np.asarray(images)
        if numbers.dtype.kind != "f":
            raise TypeError(f"images are an array of floats, not of {numbers.dtype}; {hint}")
        sizes = numbers.shape[1:]
        larger = any_size and len(sizes) == 3 and sizes[1] >= height and sizes[2] >= width
        fits = sizes[:1] == (channels,) if larger else sizes == (channels, height, width)
        if not fits or not len(numbers):
            raise ValueError(
                f"images must be (N, {channels}, {height}, {width}), not {numbers.shape}; "
                "`prepare` makes one of a picture"
            )
        if not (numbers.min() >= -_SLACK and numbers.max() <= 1 + _SLACK):
            raise ValueError(
                f"images lie in [0, 1], these from {numbers.min():g} to {numbers.max():g}; {hint}"
            )
        return numbers.astype(np.float32, copy=False)


def _fit(manifest: Manifest, picture: Picture, query: object) -> Prepared | Problem:
    """Fit a picture to the network's images, as a service does."""
    assert isinstance(query, PictureQuery)
    try:
        any_size = query.any_size(manifest)
        return fit_picture(
            manifest, picture, fit=query.fit, polarity=query.polarity, any_size=any_size
        )
    except Problem as problem:
        return problem


def fit_picture(
    manifest: Manifest,
    picture: Picture,
    *,
    fit: Fit = "auto",
    polarity: Polarity = "auto",
    any_size: bool = True,
) -> Prepared:
    """Fit a picture of any size to the images of a network.

    Args:
        any_size: whether `fit="none"` takes larger pictures, if the network does.

    Raises:
        TypeError: this is no picture.
        ValueError: it cannot be read or fitted; the message says why.
        OSError: the file cannot be read.
    """
    opened = open_picture(picture, channels=manifest.channels)
    return prepare(
        load_image(opened) if isinstance(opened, Image.Image) else opened,
        manifest.image_shape,
        rule=manifest.preprocess,
        fit=fit,
        polarity=polarity,
        any_size=any_size and manifest.any_size,
    )


def is_one(images: Picture | Iterable[Picture]) -> TypeIs[Picture]:
    """Whether this is one picture, or nothing that could hold several."""
    kinds = (str, PathLike, bytes, bytearray, memoryview, Image.Image, np.ndarray)
    return isinstance(images, kinds) or hasattr(images, "read") or not isinstance(images, Iterable)


def open_picture(picture: Picture, *, channels: int = 3) -> Image.Image | Floats:
    """Open a picture of any accepted kind: as a Pillow image, or as an array (H, W, C) in [0, 1].

    Args:
        channels: of the network's images. Only those of 1 and 3 take Pillow images.

    Raises:
        TypeError: this is no picture.
        ValueError: it cannot be read as one, has too many pixels, or the array has
            another shape or other values.
        OSError: the file is not there.
    """
    if isinstance(picture, Image.Image):
        return picture
    if isinstance(picture, np.ndarray):
        if channels not in (1, 3):
            return to_unit(np.atleast_3d(picture))
        return Image.fromarray(_to_bytes(_channels_last(picture)))
    if isinstance(picture, (str, PathLike)):
        content = Path(picture).read_bytes()
    elif isinstance(picture, (bytes, bytearray, memoryview)):
        content = bytes(picture)
    elif hasattr(picture, "read"):
        content = picture.read()
    else:
        raise TypeError(
            "a picture is a path, the bytes of a file, an open file, a Pillow image or an array, "
            f"not {type(picture).__name__}"
        )
    return open_image(content)


def _channels_last(array: NDArray[Any]) -> NDArray[Any]:
    """(H, W) or (H, W, C) of one image."""
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    wrong = array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4))
    if wrong or not array.size:
        raise ValueError(
            f"an array is one picture, (H, W), (H, W, C) or (C, H, W), not {array.shape}"
        )
    return array


def _to_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """0 to 255, of whole numbers, truth values, or floats in [0, 1]."""
    fraction = array.dtype.kind in "fb"
    if array.dtype.kind not in "fbiu":
        raise TypeError(f"a picture is an array of numbers, not of {array.dtype}")
    most = 1 if fraction else WHITE
    if not ((array >= 0) & (array <= most)).all():
        raise ValueError(
            f"a picture of {array.dtype} has values from 0 to {most}, not {array.min():g} to "
            f"{array.max():g}" + "; make it uint8 if they are 0 to 255" * fraction
        )
    return np.ascontiguousarray((array * float(WHITE)).round() if fraction else array, np.uint8)
