"""The JSON answers of the routes that look inside, field by field."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from model.bundle import Manifest
from model.runtime import Floats
from model.sweep import Sweep
from service.answers import DataUrl, FitReport, Meaning, Pose, data_url, rounded
from service.inside import agreement
from service.inside.affine import Transform
from service.inside.equivariance import EquivarianceView
from service.inside.views import RoutingView
from service.inspector import Sight


class DecodeAnswer(BaseModel):
    """The pictures of some poses."""

    model: str
    label: int
    class_name: str
    images: list[DataUrl] = Field(description="One for each pose, in order.")

    @classmethod
    def of(cls, manifest: Manifest, label: int, images: Floats) -> Self:
        """From images (M, H, W)."""
        return cls(
            model=manifest.name,
            label=label,
            class_name=manifest.class_names[label],
            images=[data_url(image) for image in images],
        )


class SweepAnswer(BaseModel):
    """One row of pictures for each dimension, one column for each delta."""

    model: str
    label: int
    class_name: str
    length: float
    pose: Pose
    dims: list[int]
    deltas: list[float]
    meanings: list[Meaning | None] = Field(description="What each of `dims` was found to do.")
    images: list[list[DataUrl]] = Field(description="Rows as in `dims`, columns as in `deltas`.")
    fit: FitReport

    @classmethod
    def of(cls, manifest: Manifest, sight: Sight, sweep: Sweep, images: Floats) -> Self:
        """From images (len(dims), len(deltas), H, W)."""
        return cls(
            model=manifest.name,
            label=sight.label,
            class_name=manifest.class_names[sight.label],
            length=rounded(sight.reading.lengths[sight.label]),
            pose=rounded(sight.pose),
            dims=list(sweep.dims),
            deltas=list(sweep.deltas),
            meanings=[Meaning.of(manifest, sight.label, dim) for dim in sweep.dims],
            images=[[data_url(image) for image in row] for row in images],
            fit=FitReport.of(sight.reading.prepared),
        )


class EquivarianceAnswer(BaseModel):
    """Length and pose of a class while the picture is moved. Lists over steps follow `values`."""

    model: str
    label: int = Field(description="The class that is looked at.")
    class_name: str
    transform: Transform
    values: list[float]
    lengths: list[float] = Field(description="Of the class that is looked at.")
    labels: list[int] = Field(description="The longest capsule at each step.")
    angles_deg: list[float] = Field(description="From the pose of the unmoved picture.")
    poses: list[Pose] = Field(description="Of the class that is looked at.")
    fit: FitReport

    @classmethod
    def of(cls, manifest: Manifest, view: EquivarianceView) -> Self:
        """From a watched walk."""
        label = view.sight.label
        return cls(
            model=manifest.name,
            label=label,
            class_name=manifest.class_names[label],
            transform=view.walk.transform,
            values=list(view.walk.values),
            lengths=rounded(view.lengths[:, label]),
            labels=view.lengths.argmax(axis=1).tolist(),
            angles_deg=rounded(view.angles_deg),
            poses=rounded(view.poses),
            fit=FitReport.of(view.sight.reading.prepared),
        )


class RoutingIteration(BaseModel):
    """The state after one iteration. Lists over classes are by label."""

    lengths: list[float] = Field(description="(K,) of the class capsules.")
    agreement: list[float] = Field(
        description="(K,), from -1 to 1: how far the votes for a class point the same way."
    )
    entropy: float = Field(
        description="How undecided the primary capsules are, from 0 to 1 (all classes alike)."
    )
    couplings: list[list[float]] | None = Field(
        None, description="(K, I), summing to one over the classes; with detail=true."
    )
    logits: list[list[float]] | None = Field(
        None, description="(K, I), the logits that gave the couplings; with detail=true."
    )


class HeatMaps(BaseModel):
    """Support: how much of a class capsule's length before its squash comes from where.

    Negative where votes point away from the class's pose.
    """

    grid: list[list[list[list[float]]]] = Field(
        description="(R, K, G, G): summed over capsule types, rows from the top."
    )
    types: list[list[list[float]]] = Field(description="(R, K, T): summed over the grid.")


class Votes(BaseModel):
    """The votes for the label in the plane in which they differ most."""

    explained: list[float] = Field(description="Share of their variance along x and along y.")
    points: list[list[float]] | None = Field(
        None, description="(I, 2); their weighted mean is the origin; with detail=true."
    )
    couplings: list[float] | None = Field(
        None, description="(I,), the weights: the last couplings; with detail=true."
    )


class RoutingAnswer(BaseModel):
    """How the capsules came to agree, iteration by iteration.

    Primary capsule i has type t, row y and column x: i = (t * grid + y) * grid + x.
    """

    model: str
    label: int = Field(description="The class that is looked at.")
    class_name: str
    length: float
    primary_types: int = Field(description="T")
    primary_grid: int = Field(description="G")
    iterations: list[RoutingIteration]
    heat_maps: HeatMaps
    votes: Votes
    fit: FitReport

    @classmethod
    def of(cls, manifest: Manifest, view: RoutingView, *, detail: bool) -> Self:
        """From a routed picture."""
        grid, routing = manifest.primary_grid, view.routing
        return cls(
            model=manifest.name,
            label=view.label,
            class_name=manifest.class_names[view.label],
            length=rounded(view.lengths[-1, view.label]),
            primary_types=manifest.primary_types,
            primary_grid=grid,
            iterations=[
                RoutingIteration(
                    lengths=rounded(view.lengths[step]),
                    agreement=rounded(view.agreement[step]),
                    entropy=rounded(view.entropy[step]),
                    couplings=rounded(routing.couplings[step]) if detail else None,
                    logits=rounded(routing.logits[step]) if detail else None,
                )
                for step in range(manifest.routing_iterations)
            ],
            heat_maps=HeatMaps(
                grid=rounded(agreement.on_grid(view.support, grid)),
                types=rounded(agreement.by_type(view.support, grid)),
            ),
            votes=Votes(
                explained=rounded(view.projection.explained),
                points=rounded(view.projection.points) if detail else None,
                couplings=rounded(routing.couplings[-1, view.label]) if detail else None,
            ),
            fit=FitReport.of(view.prepared),
        )
