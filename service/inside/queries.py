"""What the routes that look inside are asked with. Unknown parameters are refused."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from model.interpret.sweep import MAX_PICTURES
from service.inside.affine import Transform
from service.inside.equivariance import MAX_STEPS
from service.queries import PictureQuery

Component = Annotated[float, Field(strict=True, ge=-10, le=10, allow_inf_nan=False)]
Pose = Annotated[
    list[Component], Field(fail_fast=True, description="D numbers, each from -10 to 10.")
]
Scale = Annotated[int, Field(ge=1, le=8, description="PNG: each pixel becomes scale x scale.")]
Target = Annotated[
    int | None,
    Field(ge=0, description="Label of the class to look at; by default the longest capsule's."),
]
Value = Annotated[float | None, Field(allow_inf_nan=False)]
Delta = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]


MAX_POSES_BYTES = 500_000
"""Of a body of `/decode`; the most poses, of 16 numbers, take a fifth of it."""


class DecodeQuery(BaseModel):
    """Of `/decode`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(None, description="A bundle of `GET /models`.", examples=["mnist"])
    scale: int = Field(1, ge=1, le=32, description="PNG: each pixel becomes scale x scale.")


class DecodeBody(BaseModel):
    """Poses of one class: `pose` or `poses`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pose: Pose | None = None
    poses: list[Pose] | None = Field(None, min_length=1, max_length=MAX_PICTURES, fail_fast=True)
    label: int = Field(strict=True, ge=0, description="The class whose decoder draws.")

    @model_validator(mode="before")
    @classmethod
    def _few(cls, members: object) -> object:
        """Of thousands of unknown members a few: naming them all would take long."""
        return dict(islice(members.items(), 8)) if isinstance(members, dict) else members

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.pose is None) == (self.poses is None):
            raise ValueError("give either pose or poses")
        return self

    @property
    def all_poses(self) -> list[list[float]]:
        """The pose or the poses."""
        return [self.pose] if self.pose is not None else self.poses or []


class SweepQuery(PictureQuery):
    """Of `/perturb/sweep`."""

    dims: list[int] | None = Field(None, min_length=1, description="Repeatable; default: all.")
    start: Delta = Field(-0.25, alias="from", description="First delta.")
    stop: Delta = Field(0.25, alias="to", description="Last delta.")
    step: float = Field(
        0.05, ge=1e-6, le=2, allow_inf_nan=False, description="From delta to delta."
    )
    target: Target = None
    scale: Scale = 2


class EquivarianceQuery(PictureQuery):
    """Of `/equivariance`."""

    transform: Transform = Field("turn", description="What is done to the fitted picture.")
    start: Value = Field(
        None,
        alias="from",
        description="Pixels to the right or down, degrees counter-clockwise, or a factor; "
        "by default -6, -60 or 0.6.",
    )
    stop: Value = Field(None, alias="to", description="Above `from`; by default 6, 60 or 1.4.")
    steps: int = Field(13, ge=2, le=MAX_STEPS, description="Pictures, both ends included.")
    target: Target = None


class RoutingQuery(PictureQuery):
    """Of `/routing`."""

    target: Target = None
    detail: bool = Field(
        default=True,
        description="`false` leaves out what has a number for each input capsule (couplings, "
        "logits and votes: half a megabyte for the paper's network) and maps of hidden layers.",
    )
    scale: int = Field(8, ge=5, le=16, description="PNG: each pixel becomes scale x scale.")
