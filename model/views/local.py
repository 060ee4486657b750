"""Ask a view of a network in this process: no service, no event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError

from model.bundle import Manifest
from model.errors import InvalidParameter, Problem, UnreadablePicture, unwrap
from model.outputs import Encoding, Trace
from model.preprocess import Floats, Prepared, PreprocessError, load_image, prepare
from model.views.net import require, run
from model.views.query import PictureQuery, describe_fault
from model.views.view import A, Q, View

if TYPE_CHECKING:
    from model.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class LocalNet:
    """A network in this process: a `model.views.net.Net` that never suspends."""

    runtime: Runtime

    @property
    def manifest(self) -> Manifest:
        """The manifest of its bundle."""
        return self.runtime.manifest

    async def encode(self, images: Sequence[Floats]) -> list[Encoding[Floats] | Exception]:
        """Encode images in batches; one by one where their sizes differ."""
        if len({image.shape for image in images}) > 1:
            return [row for image in images for row in await self.encode([image])]
        size = self.runtime.max_encode_rows
        parts = [images[start : start + size] for start in range(0, len(images), size)]
        return [
            Encoding(*row)
            for part in parts
            for row in zip(*self.runtime.encode(np.stack(part)), strict=True)
        ]

    async def decode(self, poses: Floats, labels: int | NDArray[np.int64]) -> Floats:
        """Decode poses as one batch."""
        if not len(poses):
            return np.zeros((0, *self.manifest.image_shape), np.float32)
        classes = np.broadcast_to(np.asarray(labels, np.int64), len(poses))
        return self.runtime.decode(poses, np.ascontiguousarray(classes))

    async def trace(self, image: Floats) -> Trace[Floats]:
        """Trace the routing of one image."""
        arrays = self.runtime.trace(image[None]).named().values()
        return Trace.of((array[0] for array in arrays), self.manifest.layers)

    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function here and now."""
        return work(*args, **kwargs)


def ask(
    runtime: Runtime,
    view: View[Q, A],
    pictures: Sequence[Image.Image | Floats | Problem],
    parameters: Mapping[str, object],
    *,
    alone: bool = True,
) -> A:
    """Ask a view of a network.

    Args:
        runtime: of the network.
        view: the view that answers.
        pictures: as many as the view takes. Problems stand for those that could not be opened.
        parameters: of the view's query. Those that are None have their defaults.
        alone: whether the problem of a picture that fails is raised; otherwise the answer has the
            problem in place of the picture's result.

    Raises:
        InvalidParameter: a parameter is missing or wrong.
        NotOffered: the network cannot do what is needed.
        UnreadablePicture: a picture is truncated or corrupt.
    """
    net = LocalNet(runtime)
    manifest, query = net.manifest, _read(view.query, parameters)
    require(manifest, view.needs)
    if view.of_pairs and not manifest.of_pairs:
        detail = f"{manifest.name!r} was not trained on overlapping digits"
        raise InvalidParameter(detail, parameter="model")
    query.check(manifest)
    fitted = [_fit(manifest, picture, query) for picture in pictures]
    if alone or view.pictures[1] is not None:
        fitted = list(map(unwrap, fitted))
    answer = run(view.ask(net, query, *fitted))
    if view.draw:
        answer.drawn_by(partial(_draw, view, answer, query, manifest))
    return answer


def _read(kind: type[Q], parameters: Mapping[str, object]) -> Q:
    given = {name: value for name, value in parameters.items() if value is not None}
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise describe_fault(error) from error


def _fit(
    manifest: Manifest, picture: Image.Image | Floats | Problem, query: object
) -> Prepared | Problem:
    """Fit a picture to the network's images, as a service does."""
    if isinstance(picture, Problem):
        return picture
    assert isinstance(query, PictureQuery)
    try:
        return prepare(
            load_image(picture) if isinstance(picture, Image.Image) else picture,
            manifest.image_shape,
            rule=manifest.preprocess,
            fit=query.fit,
            polarity=query.polarity,
            any_size=query.any_size(manifest),
        )
    except PreprocessError as error:
        return InvalidParameter(str(error), parameter="fit")
    except UnreadablePicture as problem:
        return problem


def _draw(view: View[Q, A], answer: A, query: Q, manifest: Manifest, scale: int | None) -> bytes:
    """Draw an answer, perhaps on another scale than was asked for."""
    query.check_drawing()
    if scale is not None:
        query = _read(type(query), {**dict(query), "scale": scale})
    return view.drawing(answer, query, manifest)()
