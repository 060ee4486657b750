"""The JSON answer of `/segment`, field by field."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import BaseModel, Field

from model.bundle import Manifest
from service.answers import BundleAnswer, DataUrl, FitReport, data_url, rounded
from service.pairs import segmentation
from service.pairs.segmentation import Segmentation


class Segment(BaseModel):
    """One class that is taken for present."""

    label: int
    class_name: str
    length: float = Field(description="Of its capsule: how sure, in [0, 1).")
    mask: DataUrl = Field(
        description="White where the picture has ink and the reconstruction is bright; a pixel may "
        "belong to several digits."
    )
    reconstruction: DataUrl = Field(description="Its capsule, decoded alone.")
    ink_share: float = Field(
        description="How much of the picture's ink lies in the mask; ink in several masks counts "
        "for each."
    )

    @classmethod
    def of(cls, manifest: Manifest, segment: segmentation.Segment) -> Self:
        """From one digit of a picture."""
        return cls(
            label=segment.label,
            class_name=manifest.class_names[segment.label],
            length=rounded(segment.length),
            mask=data_url(segment.mask[None].astype(np.float32)),
            reconstruction=data_url(segment.reconstruction[None]),
            ink_share=rounded(segment.ink_share),
        )


class SegmentAnswer(BundleAnswer):
    """A picture of overlapping digits, taken apart."""

    segments: list[Segment] = Field(description="The longest capsule first.")
    explained_ink: float = Field(description="How much of the picture's ink lies in any mask.")
    fit: FitReport

    @classmethod
    def of(cls, manifest: Manifest, found: Segmentation) -> Self:
        """From a picture taken apart."""
        return cls(
            model=manifest.name,
            version=manifest.version,
            segments=[Segment.of(manifest, segment) for segment in found.segments],
            explained_ink=rounded(found.explained_ink),
            fit=FitReport.of(found.encoded.prepared),
        )
