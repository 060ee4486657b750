"""From uploads to what the networks say of them: the only caller of the engine."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.interpret.novelty import Novelty, measure_features
from model.preprocess import Floats, Prepared
from model.runtime import Encoding, Trace
from service.errors import InvalidParameter, NotOffered, Problem, UnknownModel, checked
from service.inference.engine import Engine, result
from service.inference.job import Admission, Job
from service.pictures import Frame, Upload
from service.pictures.preparation import Preparation
from service.telemetry import timings

log = logging.getLogger(__name__)


class Capsule(NamedTuple):
    """One class capsule of an encoded image."""

    prepared: Prepared
    """The image."""
    label: int
    presence: float
    """How present the class is, in [0, 1]."""
    pose: Floats
    """(D,)."""


class Encoded(NamedTuple):
    """One image, and what the network says of it."""

    prepared: Prepared
    presence: Floats
    """(K,)."""
    poses: Floats
    """(K, D)."""

    def capsule(self, target: int | None = None) -> Capsule:
        """The target class's, or the most present one."""
        label = int(self.presence.argmax()) if target is None else target
        return Capsule(self.prepared, label, float(self.presence[label]), self.poses[label])


def check_label(manifest: Manifest, label: int | None, *, parameter: str = "target") -> None:
    """Refuse a label that the model does not have.

    Raises:
        InvalidParameter: it is out of range.
    """
    if label is not None and label >= manifest.num_classes:
        raise InvalidParameter(
            f"{parameter} is a label from 0 to {manifest.num_classes - 1}", parameter=parameter
        )


@dataclass
class Inspector:
    """Takes the uploads of one job through preparation and the engine.

    Methods that compute raise `Closed` and `DeadlineExceeded`: see `Batcher.submit`.
    """

    engine: Engine
    job: Job
    """Whose rows they are."""
    admission: Admission
    preparation: Preparation
    default_model: str
    """For requests that name none."""
    drawing: Admission | None = None
    """Where the answer has to wait to be drawn."""

    def __post_init__(self) -> None:
        self._drawn = Job(self.job.arrived, self.job.deadline)

    def admit(self, rows: int) -> None:
        """Let the job wait for so many rows, and to be drawn, before anything is decoded.

        Raises:
            QueueFull: see `Admission.admit`.
        """
        self.job.cost = rows
        self.admission.admit(self.job)
        if self.drawing:
            self.drawing.admit(self._drawn)

    def note_drawing(self) -> None:
        """Count the answer as drawn."""
        if self.drawing:
            self.drawing.note(self._drawn, 1)

    def release(self) -> None:
        """Give back what was admitted and not computed."""
        self.admission.release(self.job)
        if self.drawing:
            self.drawing.release(self._drawn)

    def manifest(self, model: str | None, *, needs: Offer | None = None) -> Manifest:
        """The manifest of a loaded bundle, or of the default one.

        Raises:
            UnknownModel: it is not loaded.
            NotOffered: its network cannot do what is needed.
        """
        name = model or self.default_model
        if name not in self.engine.manifests:
            known = ", ".join(sorted(self.engine.manifests))
            raise UnknownModel(f"{name!r} is not loaded; loaded: {known}", parameter="model")
        manifest = self.engine.manifests[name]
        if needs and needs not in manifest.offers:
            offers = ", ".join(("encode", *manifest.offers))
            raise NotOffered(f"{name!r} does not offer {needs}; it offers {offers}")
        return manifest

    async def prepare(self, uploads: list[Upload], frame: Frame) -> list[Prepared | Problem]:
        """Decode and fit all uploads that can be read; problems keep their places."""
        began = time.monotonic()
        try:
            return await self.preparation.prepare(uploads, frame, deadline=self.job.deadline)
        finally:
            timings.note("preprocess", time.monotonic() - began)

    async def encode(
        self, uploads: list[Upload], manifest: Manifest, frame: Frame
    ) -> list[Encoded | Problem]:
        """Encode all uploads that can be read, as one batch; problems keep their places."""
        prepared = await self.prepare(uploads, frame)
        images = [one.image for one in prepared if isinstance(one, Prepared)]
        encodings = iter(await self._encode(manifest, images) if images else ())
        return [
            one if isinstance(one, Problem) else _encoded(one, next(encodings)) for one in prepared
        ]

    async def capsule(
        self, upload: bytes, manifest: Manifest, frame: Frame, *, target: int | None
    ) -> Capsule:
        """Encode one upload and take the target class, or the most present one.

        Raises:
            Problem: the upload cannot be read.
        """
        (encoded,) = await self.encode([upload], manifest, frame)
        return checked(encoded).capsule(target)

    async def trace(
        self, upload: bytes, manifest: Manifest, frame: Frame
    ) -> tuple[Prepared, Trace]:
        """One image, and what routing did with it.

        Raises:
            Problem: the upload cannot be read.
        """
        prepared = checked((await self.prepare([upload], frame))[0])
        return prepared, await self.trace_image(manifest, prepared.image)

    async def trace_image(self, manifest: Manifest, image: Floats) -> Trace:
        """What routing did with one image (C, H, W)."""
        trace = await self.engine.trace(self.job, manifest.name, image)
        self.admission.note(self.job, 1)
        return trace

    async def encode_images(self, manifest: Manifest, images: list[Floats]) -> Encoding:
        """Presence (N, K) and poses (N, K, D) of N images (C, H, W), as one batch.

        Raises:
            Exception: what the runtime raised for one of them.
        """
        presence, poses = zip(*map(result, await self._encode(manifest, images)), strict=True)
        return Encoding(np.stack(presence), np.stack(poses))

    async def decode(
        self, manifest: Manifest, poses: Floats, labels: int | NDArray[np.int64]
    ) -> Floats:
        """Images (M, C, H, W) of poses (M, D) of one class or of a class each, as one batch."""
        if not len(poses):
            return np.zeros((0, *manifest.image_shape), np.float32)
        classes = np.broadcast_to(np.asarray(labels, np.int64), len(poses))
        images = await self.engine.decode(self.job, manifest.name, poses, classes)
        self.admission.note(self.job, len(poses))
        return images

    async def judge(self, manifest: Manifest, images: Floats, encoding: Encoding) -> list[Novelty]:
        """The novelty of N images (C, H, W), their longest capsules decoded as one batch.

        The bundle has a novelty rule.
        """
        assert manifest.novelty
        labels = encoding.presence.argmax(axis=1)
        longest = encoding.poses[np.arange(len(labels)), labels]
        drawn = await self.decode(manifest, longest, labels)
        gaussians = manifest.novelty.gaussians
        return manifest.novelty.judge(measure_features(*encoding, images, drawn, gaussians))

    async def _encode(self, manifest: Manifest, images: list[Floats]) -> list[Encoding | Exception]:
        encodings = await self.engine.encode(self.job, manifest.name, images)
        self.admission.note(self.job, len(images))
        return encodings


def _encoded(prepared: Prepared, encoding: Encoding | Exception) -> Encoded | Problem:
    if isinstance(encoding, Exception):
        log.error("inference failed for one image", exc_info=encoding)
        return Problem("inference failed for this picture")
    return Encoded(prepared, *encoding)
