"""What can be asked of a picture, in terms of pictures and answers: no HTTP here."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.preprocess import Floats, Prepared
from model.runtime import Encoding
from service.engine import Engine
from service.preparation import Fitting, Frame, Preparation
from service.problems import InvalidParameter, NotOffered, Problem, UnknownModel
from service.timings import timing
from service.uploads import Upload

log = logging.getLogger(__name__)


class Encoded(NamedTuple):
    """One picture, and what the network says of it."""

    prepared: Prepared
    presence: Floats
    """(K,)."""
    poses: Floats
    """(K, D)."""


@dataclass(frozen=True)
class Capsule:
    """One class capsule of an encoded picture."""

    encoded: Encoded
    label: int

    @property
    def presence(self) -> float:
        """How present the class is, in [0, 1]."""
        return float(self.encoded.presence[self.label])

    @property
    def pose(self) -> Floats:
        """(D,)."""
        return np.asarray(self.encoded.poses[self.label])


@dataclass(frozen=True)
class Reconstruction(Capsule):
    """A class capsule, decoded."""

    image: Floats
    """(C, H, W) in [0, 1]."""


class Perturbation(NamedTuple):
    """A reconstruction, and the image of the same pose with one dimension moved."""

    reconstruction: Reconstruction
    dim: int
    delta: float
    pose: Floats
    """(D,), moved."""
    image: Floats
    """(C, H, W) in [0, 1]."""


def check_label(manifest: Manifest, label: int | None, *, parameter: str) -> None:
    """Refuse a label that the model does not have.

    Raises:
        InvalidParameter: it is out of range.
    """
    if label is not None and label >= manifest.num_classes:
        raise InvalidParameter(
            f"{parameter} is a label from 0 to {manifest.num_classes - 1}", parameter=parameter
        )


def check_dim(manifest: Manifest, dim: int) -> None:
    """Refuse a dimension that the model's poses do not have.

    Raises:
        InvalidParameter: it is out of range.
    """
    if dim >= manifest.class_dim:
        raise InvalidParameter(f"dim is 0 to {manifest.class_dim - 1}", parameter="dim")


def _encoded(prepared: Prepared, encoding: Encoding | Exception) -> Encoded | Problem:
    if isinstance(encoding, Exception):
        log.error("inference failed for one image", exc_info=encoding)
        return Problem("inference failed for this picture")
    return Encoded(prepared, *encoding)


class Inspector:
    """Takes pictures' bytes through preparation and the engine.

    Args:
        engine: where inference happens; closed with the inspector.
        preparation: where pictures are decoded and fitted; closed with the inspector.
        default_model: for requests that name none.
    """

    def __init__(self, engine: Engine, preparation: Preparation, *, default_model: str) -> None:
        self.engine = engine
        self.manifests = engine.manifests
        self.default_model = default_model
        self._preparation = preparation

    def manifest(self, model: str | None, *, needs: Offer | None = None) -> Manifest:
        """The manifest of a loaded bundle, or of the default one.

        Raises:
            UnknownModel: it is not loaded.
            NotOffered: its network cannot do what is needed.
        """
        name = model or self.default_model
        if name not in self.manifests:
            known = ", ".join(sorted(self.manifests))
            raise UnknownModel(f"{name!r} is not loaded; loaded: {known}", parameter="model")
        manifest = self.manifests[name]
        if needs and needs not in manifest.offers:
            offers = ", ".join(("encode", *manifest.offers))
            raise NotOffered(f"{name!r} does not offer {needs}; it offers {offers}")
        return manifest

    async def encode(
        self, uploads: list[Upload], manifest: Manifest, fitting: Fitting
    ) -> list[Encoded | Problem]:
        """Encode all pictures that can be read, as one batch; problems keep their places.

        Raises:
            service.batcher.Full: there is no room; known before a picture is decoded.
        """
        prepared = await self._prepare(uploads, Frame.of(manifest), fitting)
        images = [one.image for one in prepared if isinstance(one, Prepared)]
        if not images:
            return [one for one in prepared if isinstance(one, Problem)]
        encodings = iter(await self.engine.encode(manifest.name, images))
        return [
            one if isinstance(one, Problem) else _encoded(one, next(encodings)) for one in prepared
        ]

    async def prepare(self, picture: bytes, manifest: Manifest, fitting: Fitting) -> Prepared:
        """Decode a picture and make it look like a training image.

        Raises:
            Problem: it cannot be read.
            service.batcher.Full: there is no room.
        """
        (prepared,) = await self.prepare_all([picture], Frame.of(manifest), fitting)
        return prepared

    async def prepare_all(
        self, uploads: list[Upload], frame: Frame, fitting: Fitting
    ) -> list[Prepared]:
        """The same of several pictures, for images of any kind.

        Raises:
            Problem: one of them cannot be read.
            service.batcher.Full: there is no room.
        """
        prepared = await self._prepare(uploads, frame, fitting)
        for one in prepared:
            if isinstance(one, Problem):
                raise one
        return [one for one in prepared if isinstance(one, Prepared)]

    async def _prepare(
        self, uploads: list[Upload], frame: Frame, fitting: Fitting
    ) -> list[Prepared | Problem]:
        """Where there is room in the queue behind all that are being prepared."""
        self.engine.check_room(len(uploads), ahead=self._preparation.waiting)
        with timing("preprocess"):
            return await self._preparation.prepare(uploads, frame, fitting)

    async def capsule(
        self, picture: bytes, manifest: Manifest, fitting: Fitting, *, target: int | None
    ) -> Capsule:
        """Encode one picture and take the target class, or the most present one.

        Raises:
            Problem: the picture cannot be read or the target is out of range.
        """
        check_label(manifest, target, parameter="target")
        (encoded,) = await self.encode([picture], manifest, fitting)
        if isinstance(encoded, Problem):
            raise encoded
        return Capsule(encoded, int(encoded.presence.argmax()) if target is None else target)

    async def reconstruct(
        self, picture: bytes, manifest: Manifest, fitting: Fitting, *, target: int | None
    ) -> Reconstruction:
        """Decode the pose of the target class, or of the most present one.

        Raises:
            Problem: the picture cannot be read or the target is out of range.
        """
        capsule = await self.capsule(picture, manifest, fitting, target=target)
        (image,) = await self.decode(manifest, capsule.pose[None], capsule.label)
        return Reconstruction(capsule.encoded, capsule.label, image)

    async def perturb(
        self, reconstruction: Reconstruction, manifest: Manifest, *, dim: int, delta: float
    ) -> Perturbation:
        """Move one dimension of a pose and decode it again (paper, section 5.1)."""
        pose = reconstruction.pose.copy()
        pose[dim] += delta
        (image,) = await self.decode(manifest, pose[None], reconstruction.label)
        return Perturbation(reconstruction, dim, delta, pose, image)

    async def decode(self, manifest: Manifest, poses: Floats, label: int) -> Floats:
        """Images (M, C, H, W) of poses (M, D) of one class, as one batch."""
        classes = np.full(len(poses), label, np.int64)
        return await self.engine.decode(manifest.name, poses, classes)

    def close(self, timeout_s: float | None) -> bool:
        """Stop both; whether the engine finished within the timeout."""
        self._preparation.close()
        return self.engine.close(timeout_s)
