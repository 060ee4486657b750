"""What the JSON answers of routes share, field by field."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from model.bundle import Manifest
from model.interpret.dimensions import DimensionName
from model.preprocess import Floats
from model.preprocess.polarity import FoundPolarity
from service.inference.inspector import Capsule
from service.pictures.decode import encode_png

DECIMALS = 6

Lengths = Annotated[
    list[float],
    Field(description="Presence of all K classes, by label: see `presence` of `GET /models`."),
]
Pose = Annotated[list[float], Field(description="The class capsule, D numbers.")]
DataUrl = Annotated[str, Field(description="A PNG as data:image/png;base64,…")]


class Report(BaseModel):
    """A part of an answer that is read off an object, by its attributes."""

    model_config = ConfigDict(from_attributes=True)


class FitReport(Report):
    """What was done to the picture before the network saw it."""

    fit: Literal["none", "stretch", "crop", "digit", "pair"]
    polarity: FoundPolarity | None = Field(description="As it came; null for photographs.")
    box: tuple[int, int, int, int] | None = Field(
        description="Left, top, right and bottom of the strokes, in pixels of the decoded picture; "
        "null where they were not looked for or nothing was found."
    )


class Meaning(Report):
    """What a pose dimension was found to do; measured when the bundle was made."""

    name: DimensionName
    sign: int = Field(description="1: growing gives more of it; -1: less; 0: neither.")
    strength: float = Field(description="Share of the picture's change that the name explains.")
    effect: str = Field(description="What the picture does as the dimension grows; may be empty.")


class BundleAnswer(BaseModel):
    """Which bundle answers."""

    model: str
    version: str = Field(description="Of the weights.")


class CapsuleAnswer(BundleAnswer):
    """Which class of a picture the answer is about."""

    label: int
    class_name: str
    length: float = Field(description="How present the class is, in [0, 1].")
    fit: FitReport


def bundle(manifest: Manifest) -> dict[str, Any]:
    """The fields of a BundleAnswer."""
    return {"model": manifest.name, "version": manifest.version}


def about(manifest: Manifest, capsule: Capsule, **more: Any) -> dict[str, Any]:
    """The fields of a CapsuleAnswer, and more; a Report may be given as what it is read off."""
    return {
        **bundle(manifest),
        "label": capsule.label,
        "class_name": manifest.class_names[capsule.label],
        "length": rounded(capsule.presence),
        "fit": capsule.prepared,
        **more,
    }


def rounded(values: Any) -> Any:
    """A float32 array or scalar as Python floats, without the digits that float32 never had."""
    return np.asarray(values, np.float64).round(DECIMALS).tolist()


def data_url(image: Floats) -> str:
    """An image (C, H, W) in [0, 1] as a PNG data URL."""
    return f"data:image/png;base64,{base64.b64encode(encode_png(image)).decode()}"
