"""The query parameters of each route. Unknown ones are refused: a typo must not pass unread."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from model.preprocess import Fit, Polarity
from service.preparation import Fitting


class PictureQuery(BaseModel):
    """What every route with a picture understands."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(None, description="A bundle of `GET /models`.", examples=["mnist"])
    fit: Fit = Field(
        "auto",
        description="`none` takes pictures of the network's size as they are, `stretch` scales the "
        "whole picture, `crop` its middle, `digit` and `pair` find the strokes of one and of two "
        "digits; `auto` is `none` where the size is right and the model's own rule elsewhere.",
    )
    polarity: Polarity = Field(
        "auto", description="Found from the picture by default; photographs have none."
    )

    @property
    def fitting(self) -> Fitting:
        """Both fitting parameters together."""
        return Fitting(self.fit, self.polarity)


class ClassifyQuery(PictureQuery):
    """Of `/classify`."""

    poses: bool = Field(False, description="Adds the poses of all classes.")
    known: bool = Field(
        False, description="Adds whether each picture looks like those of the training."
    )


class ReconstructQuery(PictureQuery):
    """Of `/reconstruct`."""

    target: int | None = Field(
        None, ge=0, description="Label of the class to decode; by default the longest capsule's."
    )
    scale: int = Field(1, ge=1, le=32, description="PNG: each pixel becomes scale x scale.")


class PerturbQuery(ReconstructQuery):
    """Of `/perturb`."""

    dim: int = Field(ge=0, description="The pose dimension to move, below D.", examples=[4])
    delta: float = Field(
        ge=-1,
        le=1,
        allow_inf_nan=False,
        description="How far; the paper looks at -0.25 to 0.25.",
        examples=[0.1],
    )


class SampleQuery(BaseModel):
    """Of `/samples/{label}.png`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: Literal["mnist", "fashion-mnist"] = Field(
        "mnist", description="As in the manifest of a network that knows such pictures."
    )
