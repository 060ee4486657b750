"""What answers consist of: arrays, which become JSON only where that is asked for."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer
from pydantic.json_schema import SkipJsonSchema

from model.bundle import Manifest
from model.bundle.dimensions import DimensionName, PoseDimension
from model.canvas import enlarge, png
from model.preprocess import Floats
from model.preprocess.prepared import FoundPolarity
from model.views.net import Capsule

DECIMALS = 6
T = TypeVar("T")
Json: TypeAlias = dict[str, Any]


def rounded(values: Any) -> Any:
    """A float32 array or scalar as Python floats, without the digits that float32 never had."""
    return np.asarray(values, np.float64).round(DECIMALS).tolist()


def data_url(image: Floats) -> str:
    """An image (C, H, W) in [0, 1] as a PNG data URL."""
    return f"data:image/png;base64,{base64.b64encode(png(enlarge(image, 1))).decode()}"


def is_none(value: object) -> bool:
    """Whether a field has no value. JSON leaves out fields of which this is the `exclude_if`."""
    return value is None


def _rounding(kind: Any) -> PlainSerializer:
    return PlainSerializer(rounded, return_type=kind)


Number = Annotated[float, _rounding(float)]
Vector = Annotated[Floats, _rounding(list[float])]
Matrix = Annotated[Floats, _rounding(list[list[float]])]
Maps = Annotated[Floats, _rounding(list[list[list[float]]])]
MapStack = Annotated[Floats, _rounding(list[list[list[list[float]]]])]
_Pose = Annotated[list[float], Field(description="The class capsule, D numbers.")]
Pose = Annotated[Floats, _rounding(_Pose)]
Poses = Annotated[Floats, _rounding(list[_Pose])]
_DataUrl = Annotated[
    str,
    Field(
        description="A PNG as data:image/png;base64,…",
        json_schema_extra={"contentMediaType": "image/png"},
    ),
]
DataUrl = Annotated[Floats, PlainSerializer(data_url, return_type=_DataUrl)]
Inner = Annotated[SkipJsonSchema[T], Field(exclude=True, repr=False)]
"""For the drawing alone: never in JSON."""


class Part(BaseModel):
    """A part of an answer, which may be read off an object by its attributes."""

    model_config = ConfigDict(arbitrary_types_allowed=True, from_attributes=True)


class FitReport(Part):
    """The steps that were applied to the image before the network saw it."""

    fit: Literal["none", "stretch", "crop", "digit", "pair"]
    polarity: FoundPolarity | None = Field(description="As uploaded; null for photographs.")
    box: tuple[int, int, int, int] | None = Field(
        description="Left, top, right and bottom of the strokes, in pixels of the decoded image; "
        "null where they were not looked for or nothing was found."
    )


class Meaning(Part):
    """The effect of a pose dimension, measured when the bundle was made."""

    name: DimensionName
    sign: int = Field(description="1: increasing the dimension gives more; -1: less; 0: none.")
    strength: float = Field(description="Share of the image's change that the name explains.")
    effect: str = Field(description="Effect of increasing the dimension, in words; may be empty.")

    @classmethod
    def of(cls, dimension: PoseDimension | None) -> Meaning | None:
        """What a bundle says of a dimension; None if it does not name it."""
        return None if dimension is None else cls.model_validate(dimension)


class ModelAnswer(Part):
    """The name and version of the model that answers."""

    model: str
    version: str = Field(description="Version of the weights.")


class CapsuleAnswer(ModelAnswer):
    """The class that the answer is about, and its presence."""

    label: int
    class_name: str
    length: Number = Field(description="Confidence that the class is present, in [0, 1].")
    fit: FitReport


def answer_fields(manifest: Manifest, capsule: Capsule | None = None) -> Json:
    """Return the fields of a ModelAnswer or, with a capsule, of a CapsuleAnswer."""
    fields: Json = {"model": manifest.name, "version": manifest.version}
    if capsule is None:
        return fields
    name = manifest.class_names[capsule.label]
    about_class = {"label": capsule.label, "class_name": name, "length": capsule.presence}
    return {**fields, **about_class, "fit": capsule.prepared}
