"""Segment overlapping digits: which classes are present, and which strokes belong to each."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from model.bundle import Manifest
from model.canvas import draw_image
from model.errors import InvalidParameter
from model.pairs import INK, colour, find_masks, share_ink
from model.preprocess import Floats, Prepared
from model.views.answers import DataUrl, FitReport, Inner, ModelAnswer, Number, Part, answer_fields
from model.views.net import Net, encode_picture, most_present
from model.views.view import PictureQuery, Scale, View

MAX_SEGMENTS = 100
PRESENT = 0.2
"""The length from which `count=auto` may take a class for present."""
EXPLAINED = 0.055
"""`count=auto` keeps a class if its length times the share of the squared brightness that it
explains exceeds this."""

Count = int | Literal["auto"]


def candidates(lengths: Floats, count: Count) -> NDArray[np.int64]:
    """Return the labels of the classes that may be present, the longest capsule first.

    Args:
        lengths: (K,).
        count: the number of classes; `auto` takes those whose capsules are at least `PRESENT` long.
    """
    if count == "auto":
        count = int((lengths >= PRESENT).sum())
    return most_present(lengths, count)


def find_present(image: Floats, lengths: Floats, decoded: Floats) -> list[int]:
    """Return the indices of the candidates that are taken for present; perhaps of none.

    A capsule that is short, or owes its length to another digit's strokes, must explain more. Its
    reconstruction lowers the squared error of those before by a share of the image's squared
    brightness. This share, times the capsule's length, must exceed `EXPLAINED`.

    Args:
        image: (H, W) in [0, 1].
        lengths: (M,), of the candidates.
        decoded: (M, H, W), their capsules decoded.
    """
    if not (image >= INK).any():
        return []
    least = EXPLAINED * np.square(image).sum()
    seen, indices = np.zeros_like(image), []
    for index, (length, reconstruction) in enumerate(zip(lengths, decoded, strict=True)):
        both = np.minimum(seen + reconstruction, 1)
        gain = np.square(image - seen).sum() - np.square(image - both).sum()
        if length * gain > least:
            seen = both
            indices.append(index)
    return indices


class SegmentQuery(PictureQuery):
    """The parameters of `segment`."""

    count: Annotated[int, Field(ge=1, le=MAX_SEGMENTS)] | Literal["auto"] = Field(
        2,
        description="Number of classes to return, longest capsules first. `auto` tries the "
        "classes in this order. It returns a class if its capsule is long and its reconstruction "
        "explains enough ink that no earlier class explains. It may return none.",
    )
    scale: Scale = 1

    max_rows = MAX_SEGMENTS

    def check(self, manifest: Manifest) -> None:
        """Refuse more classes than the network has."""
        if self.count != "auto" and self.count > manifest.num_classes:
            raise InvalidParameter(f"count is at most {manifest.num_classes}", parameter="count")

    def rows(self, manifest: Manifest) -> int:
        """Each class that may be present is decoded."""
        return min(manifest.num_classes, MAX_SEGMENTS) if self.count == "auto" else self.count


class Segment(Part):
    """One detected class."""

    label: int
    class_name: str
    length: Number = Field(description="Length of the capsule, in [0, 1).")
    mask: DataUrl = Field(
        description="The returned digits divide the ink around each pixel. White where this digit "
        "gets at least `mask_threshold` of it. A pixel may belong to several digits."
    )
    reconstruction: DataUrl = Field(description="The digit's capsule, decoded alone.")
    ink_share: Number = Field(
        description="Share of the ink in the mask; shared ink counts in each."
    )


class SegmentAnswer(ModelAnswer):
    """An image of overlapping digits, taken apart."""

    segments: list[Segment] = Field(description="The longest capsule first.")
    explained_ink: Number = Field(description="Share of the ink that is in any mask.")
    fit: FitReport
    image: Inner[Floats]
    """The image (1, H, W)."""


async def segment(net: Net, query: SegmentQuery, picture: Prepared) -> SegmentAnswer:
    """Segment overlapping digits (paper, section 6)."""
    manifest, threshold = net.manifest, net.manifest.mask_threshold
    assert threshold is not None
    encoded = await encode_picture(net, picture)
    labels = candidates(encoded.presence, query.count)
    decoded = await net.decode(encoded.poses[labels], labels)
    (image,), decoded = picture.image, decoded[:, 0]
    if query.count == "auto":
        present = find_present(image, encoded.presence[labels], decoded)
        labels, decoded = labels[present], decoded[present]
    masks = find_masks(image, decoded, threshold=threshold)
    covered = np.concatenate((masks, masks.any(axis=0, keepdims=True)))
    *shares, explained = share_ink(image, covered)
    digits = zip(labels, masks, decoded, shares, strict=True)
    return SegmentAnswer(
        **answer_fields(manifest),
        segments=[
            Segment(
                label=label,
                class_name=manifest.class_names[label],
                length=encoded.presence[label],
                mask=mask[None].astype(np.float32),
                reconstruction=reconstruction[None],
                ink_share=share,
            )
            for label, mask, reconstruction, share in digits
        ],
        explained_ink=explained,
        fit=FitReport.model_validate(picture),
        image=picture.image,
    )


def draw_segments(answer: SegmentAnswer, scale: int) -> bytes:
    """The image, and next to it the digits in colours."""
    image = answer.image.repeat(3, axis=0)
    digits = [digit.reconstruction[0] for digit in answer.segments]
    painted = colour(np.array(digits, np.float32).reshape(-1, *image.shape[1:]))
    return draw_image(np.concatenate((image, painted), axis=2), scale)


VIEW = View(
    segment,
    draw=draw_segments,
    needs="decode",
    of_pairs=True,
    tag="classify",
    example="/overlay?first=3&second=5",
)
