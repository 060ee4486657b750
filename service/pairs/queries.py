"""What the routes for two digits are asked with. Unknown parameters are refused."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from model.preprocess import Fit, Polarity
from service.pairs.overlay import MAX_SHIFT_PX
from service.preparation import Fitting
from service.queries import PictureQuery

Distance = Annotated[int, Field(ge=-2 * MAX_SHIFT_PX, le=2 * MAX_SHIFT_PX)]
Scale = Annotated[int, Field(ge=1, le=32, description="Each pixel becomes scale x scale.")]
Label = Annotated[int, Field(ge=0, le=9)]


class SegmentQuery(PictureQuery):
    """Of `/segment`."""

    model: str | None = Field(None, description="A bundle for overlapping digits.")
    count: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        2,
        description="So many classes are taken for present, those of the longest capsules; `auto` "
        "takes all whose capsules are at least 0.5 long and that explain at least 5 % of the ink "
        "beside the longer ones, which may be none.",
    )
    scale: Scale = 1


class PlaceQuery(BaseModel):
    """How two digits lie in one picture."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dx: Distance = Field(4, description="Pixels by which the second digit lies right of the first.")
    dy: Distance = Field(4, description="Pixels by which the second digit lies below the first.")
    scale: Scale = 1


class OverlayQuery(PlaceQuery):
    """Of `POST /overlay`."""

    fit: Fit = Field("auto", description="How each picture becomes a digit; as in `/classify`.")
    polarity: Polarity = Field("auto", description="Found from the picture by default.")

    @property
    def fitting(self) -> Fitting:
        """Both fitting parameters together."""
        return Fitting(self.fit, self.polarity)


class OverlaySamplesQuery(PlaceQuery):
    """Of `GET /overlay`."""

    first: Label = Field(description="A sample digit.", examples=[3])
    second: Label = Field(description="A sample digit.", examples=[5])
