"""Taking overlapping digits apart: which classes are there, and which strokes are whose."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from model.bundle import Manifest
from model.interpret.masks import Mask, colour, explain_away, find_masks, share_ink
from model.preprocess import Floats
from service.inspector import Encoded, Inspector
from service.problems import InvalidParameter, UnknownModel

PRESENT = 0.5
"""Length from which `count=auto` may take a class for present: halfway between the margins."""

Count = int | Literal["auto"]


class Segment(NamedTuple):
    """One digit of a picture."""

    label: int
    length: float
    mask: Mask
    """(H, W)."""
    reconstruction: Floats
    """(H, W) in [0, 1], of this digit alone."""
    ink_share: float
    """How much of the picture's ink lies in the mask."""


class Segmentation(NamedTuple):
    """A picture taken apart."""

    encoded: Encoded
    segments: list[Segment]
    """The longest capsule first."""
    explained_ink: float
    """How much of the picture's ink lies in any mask."""

    def paint(self) -> Floats:
        """The input, and beside it the reconstructions, each in its colour: (3, H, 2 W)."""
        image = self.encoded.prepared.image
        layers = np.zeros((0, *image.shape[1:]), np.float32)
        if self.segments:
            layers = np.stack([segment.reconstruction for segment in self.segments])
        return np.concatenate((image.repeat(3, axis=0), colour(layers)), axis=2)


def choose_manifest(inspector: Inspector, model: str | None) -> Manifest:
    """The bundle for overlapping digits that was asked for, or the first by name.

    Raises:
        UnknownModel: it is not loaded, or none is.
        NotOffered: it cannot decode.
        InvalidParameter: it was trained on single digits.
    """
    suited = sorted(
        name
        for name, manifest in inspector.manifests.items()
        if manifest.mask_threshold is not None
    )
    if model is None and not suited:
        raise UnknownModel("no model for overlapping digits is loaded", parameter="model")
    manifest = inspector.manifest(model or suited[0], needs="decode")
    if manifest.name not in suited:
        raise InvalidParameter(
            f"{model!r} was trained on single digits; loaded for overlapping ones: "
            f"{', '.join(suited) or 'none'}",
            parameter="model",
        )
    return manifest


async def segment(
    inspector: Inspector, encoded: Encoded, manifest: Manifest, *, count: Count
) -> Segmentation:
    """Take a picture apart; all its digits are decoded as one batch.

    Args:
        count: that many classes, those of the longest capsules, are taken for present; `auto`
            takes those whose capsules are at least `PRESENT` long and explain ink that no longer
            one does, which may be none.

    Raises:
        InvalidParameter: the model has fewer classes.
    """
    assert manifest.mask_threshold is not None
    labels = _candidates(encoded.presence, count)
    image = encoded.prepared.image[0]
    drawn = np.zeros((0, *image.shape), np.float32)
    if len(labels):
        drawings = await inspector.engine.decode(manifest.name, encoded.poses[labels], labels)
        drawn = drawings[:, 0]
    masks = find_masks(image, drawn, threshold=manifest.mask_threshold)
    if count == "auto":
        present = explain_away(image, masks)
        labels, drawn, masks = labels[present], drawn[present], masks[present]
    shares = share_ink(image, masks)
    (explained,) = share_ink(image, np.array([masks.any(axis=0)]))
    segments = [
        Segment(int(label), float(encoded.presence[label]), mask, picture, float(share))
        for label, mask, picture, share in zip(labels, masks, drawn, shares, strict=True)
    ]
    return Segmentation(encoded, segments, float(explained))


def _candidates(lengths: Floats, count: Count) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Labels of the classes that may be present, the longest capsule first."""
    if count == "auto":
        count = int((lengths >= PRESENT).sum())
    elif count > len(lengths):
        raise InvalidParameter(f"count is at most {len(lengths)}", parameter="count")
    return np.argsort(-lengths, kind="stable")[:count]
