"""A network as a view sees it, and the checks that a view makes first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.errors import InvalidParameter, NotOffered, unwrap
from model.outputs import Encoding, Graph, Row, Trace
from model.preprocess import Floats, Prepared

P = ParamSpec("P")
T = TypeVar("T")


class Net(ABC):
    """One network. Its coroutines need no event loop of their own: see `run`."""

    manifest: Manifest
    """The manifest of its bundle."""

    @abstractmethod
    async def compute(self, graph: Graph, rows: Sequence[Row]) -> Sequence[Row | Exception]:
        """Compute rows by a graph. One row may fail without the others."""

    @abstractmethod
    async def aside(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that takes milliseconds. A service does so on a thread."""

    async def encode(self, images: Sequence[Floats]) -> list[Encoding[Floats] | Exception]:
        """Encode images (C, H, W) to presence (K,) and poses (K, D).

        One image may fail without the others.
        """
        rows = await self.compute("encode", [(image,) for image in images])
        return [row if isinstance(row, Exception) else Encoding(*row) for row in rows]

    async def decode(self, poses: Floats, labels: int | NDArray[np.int64]) -> Floats:
        """Decode poses (M, D) of one class, or of a class each, to images (M, C, H, W)."""
        if not len(poses):
            return np.zeros((0, *self.manifest.image_shape), np.float32)
        classes = np.broadcast_to(np.asarray(labels, np.int64), len(poses))
        rows = await self.compute("decode", list(zip(poses, classes, strict=True)))
        return np.stack([image for (image,) in map(unwrap, rows)])

    async def trace(self, image: Floats) -> Trace[Floats]:
        """Trace the routing of one image (C, H, W). The trace's arrays have no leading axis."""
        (row,) = await self.compute("trace", [(image,)])
        return Trace.of(unwrap(row), self.manifest.layers)


def run(asked: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, without an event loop.

    Raises:
        RuntimeError: it suspends.
    """
    try:
        asked.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    asked.close()
    raise RuntimeError("the view awaits something other than its network")


class Capsule(NamedTuple):
    """The capsule of one class in an encoded image."""

    prepared: Prepared
    """The image."""
    label: int
    presence: float
    """The presence of the class, in [0, 1]."""
    pose: Floats
    """(D,)."""


class Encoded(NamedTuple):
    """An image with its presence and poses."""

    prepared: Prepared
    presence: Floats
    """(K,)."""
    poses: Floats
    """(K, D)."""

    def capsule(self, target: int | None = None) -> Capsule:
        """The target class's, or the most present one."""
        label = int(self.presence.argmax()) if target is None else target
        return Capsule(self.prepared, label, float(self.presence[label]), self.poses[label])


def most_present(presence: Floats, count: int) -> NDArray[np.int64]:
    """Return the `count` most present classes, the most present first: (..., K) to (..., count)."""
    return np.argsort(-presence, axis=-1, kind="stable")[..., :count]


async def encode_all(net: Net, images: Sequence[Floats]) -> Encoding[Floats]:
    """Encode images to presence (N, K) and poses (N, K, D).

    Raise the exception of one that fails.
    """
    presence, poses = zip(*map(unwrap, await net.encode(images)), strict=True)
    return Encoding(np.stack(presence), np.stack(poses))


async def encode_picture(net: Net, picture: Prepared) -> Encoded:
    """Encode one picture."""
    (row,) = await net.encode([picture.image])
    return Encoded(picture, *unwrap(row))


def require(manifest: Manifest, offer: Offer | None) -> None:
    """Refuse a network that cannot do what is needed.

    Raises:
        NotOffered: it does not offer that.
    """
    if offer and offer not in manifest.offers:
        offers = ", ".join(("encode", *manifest.offers))
        raise NotOffered(f"{manifest.name!r} does not offer {offer}; it offers {offers}")


def check_label(manifest: Manifest, label: int | None, *, parameter: str = "target") -> None:
    """Refuse a label that the model does not have.

    Raises:
        InvalidParameter: it is out of range.
    """
    if label is not None and label >= manifest.num_classes:
        raise InvalidParameter(
            f"{parameter} is a label from 0 to {manifest.num_classes - 1}", parameter=parameter
        )
