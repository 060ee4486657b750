"""Parameters and JSON answers that several routes share."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from model.bundle import Manifest
from model.bundle.dimensions import DimensionName
from model.preprocess import Fit, Floats, Polarity
from model.preprocess.prepared import FoundPolarity
from service.errors import unwrap
from service.http.route import Query, Request
from service.http.uploads import read_picture
from service.pictures import ImageSpec, encode_png
from service.pipeline import Capsule, check_label

DECIMALS = 6
MAX_CLASSES = 1000
"""Labels and dimensions in queries may have this many values; models have fewer."""


def rounded(values: Any) -> Any:
    """A float32 array or scalar as Python floats, without the digits that float32 never had."""
    return None if values is None else np.asarray(values, np.float64).round(DECIMALS).tolist()


def data_url(image: Floats) -> str:
    """An image (C, H, W) in [0, 1] as a PNG data URL."""
    return f"data:image/png;base64,{base64.b64encode(encode_png(image)).decode()}"


Rounded = BeforeValidator(rounded)
Number = Annotated[float, Rounded]
Vector = Annotated[list[float], Rounded]
Matrix = Annotated[list[list[float]], Rounded]
Maps = Annotated[list[list[list[float]]], Rounded]
Pose = Annotated[Vector, Field(description="The class capsule, D numbers.")]
DataUrl = Annotated[
    str,
    BeforeValidator(data_url),
    Field(
        description="A PNG as data:image/png;base64,…",
        json_schema_extra={"contentMediaType": "image/png"},
    ),
]
Delta = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Index = Annotated[int, Field(ge=0, le=MAX_CLASSES - 1)]
Scale = Annotated[int, Field(ge=1, le=32, description="PNG: each pixel becomes scale x scale.")]


class ModelQuery(Query):
    """The parameters of every route that needs a model."""

    model: str | None = Field(None, description="A bundle of `GET /models`.", examples=["mnist"])


class FitQuery(Query):
    """How images are fitted to the network's size."""

    fit: Fit = Field(
        "auto",
        description="`none` requires the network's size, or a larger one in `/classify` where "
        "`GET /models` says `any_size`; `stretch` scales the whole image; `crop` "
        "takes the centre; `digit` and `pair` find the strokes of one or two digits; `auto` is "
        "`none` if the size matches, else the model's own rule.",
    )
    polarity: Polarity = Field(
        "auto",
        description="`auto` detects it; not used for photographs.",
    )


class PictureQuery(FitQuery, ModelQuery):
    """The parameters of every route that takes an image."""

    def spec(self, manifest: Manifest) -> ImageSpec:
        """Return the image that uploads are fitted to."""
        return ImageSpec(manifest.image_shape, manifest.preprocess, self.fit, self.polarity)


class TargetQuery(PictureQuery):
    """The parameters of every route for one class of an image."""

    target: Index | None = Field(None, description="A label; by default the longest capsule's.")

    async def read_capsule(
        self, request: Request, manifest: Manifest, *, extra_rows: int
    ) -> Capsule:
        """Encode the upload and take the target class, or the most present one.

        Args:
            request: with one picture.
            manifest: of the network that encodes it.
            extra_rows: rows that the handler computes after encoding.

        Raises:
            QueueFull: see `Pipeline.admit`.
        """
        check_label(manifest, self.target)
        upload, spec = await read_picture(request), self.spec(manifest)
        request.pipeline.admit(1 + extra_rows)
        (encoded,) = await request.pipeline.encode_uploads([upload], manifest, spec)
        return unwrap(encoded).capsule(self.target)


class Report(BaseModel):
    """A part of an answer that is read off an object, by its attributes."""

    model_config = ConfigDict(from_attributes=True)


class FitReport(Report):
    """The steps that were applied to the image before the network saw it."""

    fit: Literal["none", "stretch", "crop", "digit", "pair"]
    polarity: FoundPolarity | None = Field(description="As uploaded; null for photographs.")
    box: tuple[int, int, int, int] | None = Field(
        description="Left, top, right and bottom of the strokes, in pixels of the decoded image; "
        "null where they were not looked for or nothing was found."
    )


class ModelAnswer(BaseModel):
    """The name and version of the model that answers."""

    model: str
    version: str = Field(description="Version of the weights.")


class CapsuleAnswer(ModelAnswer):
    """The class that the answer is about, and its presence."""

    label: int
    class_name: str
    length: Number = Field(description="Confidence that the class is present, in [0, 1].")
    fit: FitReport


class Meaning(Report):
    """The effect of a pose dimension, measured when the bundle was made."""

    name: DimensionName
    sign: int = Field(description="1: increasing the dimension gives more; -1: less; 0: none.")
    strength: float = Field(description="Share of the image's change that the name explains.")
    effect: str = Field(description="Effect of increasing the dimension, in words; may be empty.")


def answer_fields(
    manifest: Manifest, capsule: Capsule | None = None, **more: Any
) -> dict[str, Any]:
    """Return the fields of a ModelAnswer or, with a capsule, of a CapsuleAnswer; and `more`."""
    fields = {"model": manifest.name, "version": manifest.version, **more}
    if capsule is None:
        return fields
    name = manifest.class_names[capsule.label]
    about_class = {"label": capsule.label, "class_name": name, "length": capsule.presence}
    return {**fields, **about_class, "fit": capsule.prepared}
