"""The JSON answers of the routes that look inside, field by field."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from model.bundle import Manifest
from model.interpret.sweep import Sweep
from model.preprocess import Floats
from model.runtime import LayerTrace
from service.answers import BundleAnswer, CapsuleAnswer, DataUrl, Meaning, Pose, data_url, rounded
from service.inside import agreement
from service.inside.affine import Transform
from service.inside.equivariance import EquivarianceView
from service.inside.views import RoutingView
from service.inspector import Capsule


class DecodeAnswer(BundleAnswer):
    """The pictures of some poses."""

    label: int
    class_name: str
    images: list[DataUrl] = Field(description="One for each pose, in order.")

    @classmethod
    def of(cls, manifest: Manifest, label: int, images: Floats) -> Self:
        """From images (M, C, H, W)."""
        return cls(
            model=manifest.name,
            version=manifest.version,
            label=label,
            class_name=manifest.class_names[label],
            images=[data_url(image) for image in images],
        )


class SweepAnswer(CapsuleAnswer):
    """One row of pictures for each dimension, one column for each delta."""

    pose: Pose
    dims: list[int]
    deltas: list[float]
    meanings: list[Meaning | None] = Field(description="What each of `dims` was found to do.")
    images: list[list[DataUrl]] = Field(description="Rows as in `dims`, columns as in `deltas`.")

    @classmethod
    def of(cls, manifest: Manifest, capsule: Capsule, sweep: Sweep, images: Floats) -> Self:
        """From images (len(dims), len(deltas), C, H, W)."""
        return cls(
            **cls.about(manifest, capsule),
            pose=rounded(capsule.pose),
            dims=list(sweep.dims),
            deltas=list(sweep.deltas),
            meanings=[Meaning.of(manifest, capsule.label, dim) for dim in sweep.dims],
            images=[[data_url(image) for image in row] for row in images],
        )


class EquivarianceAnswer(CapsuleAnswer):
    """Length and pose of a class while the picture is moved. Lists over steps follow `values`."""

    transform: Transform
    values: list[float]
    lengths: list[float] = Field(description="Of the class that is looked at.")
    labels: list[int] = Field(description="The most present class at each step.")
    angles_deg: list[float] | None = Field(
        description="From the pose of the unmoved picture; null where the model has no poses."
    )
    poses: list[Pose] | None = Field(description="Of the class that is looked at; likewise.")

    @classmethod
    def of(cls, manifest: Manifest, view: EquivarianceView) -> Self:
        """From the encodings of a walk."""
        return cls(
            **cls.about(manifest, view.capsule),
            transform=view.walk.transform,
            values=list(view.walk.values),
            lengths=rounded(view.presence[:, view.capsule.label]),
            labels=view.presence.argmax(axis=1).tolist(),
            angles_deg=rounded(view.angles_deg) if manifest.class_dim else None,
            poses=rounded(view.poses) if manifest.class_dim else None,
        )


class RoutingIteration(BaseModel):
    """The state after one iteration. Lists over classes are by label."""

    lengths: list[float] = Field(description="(K,), presence of the classes.")
    agreement: list[float] = Field(
        description="(K,), from -1 to 1: how far the votes for a class point the same way."
    )
    entropy: float = Field(
        description="How undecided the input capsules are, from 0 to 1 (all classes alike)."
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
        description="(R, K, rows, columns): summed over capsule types, rows from the top."
    )
    types: list[list[list[float]]] = Field(description="(R, K, T): summed over the grid.")


class Votes(BaseModel):
    """The votes for the label in the plane in which they differ most."""

    explained: list[float] = Field(description="Share of their variance along x and along y.")
    points: list[list[float]] | None = Field(
        None, description="(I, 2); their weighted mean is the origin; with detail=true."
    )
    couplings: list[float] | None = Field(
        None, description="(I,), their weights in the last iteration; with detail=true."
    )


class HiddenIteration(BaseModel):
    """A layer of convolutional capsules after one iteration."""

    activations: list[float] = Field(description="(T',): means over the layer's grid.")
    maps: list[list[list[float]]] | None = Field(
        None, description="(T', rows, columns): activations by place; with detail=true."
    )
    assignments: list[list[float]] = Field(
        description="(T', T): which share of each type of input went to each type of the layer."
    )


class HiddenLayer(BaseModel):
    """A routed layer before the last one."""

    name: str
    iterations: list[HiddenIteration]

    @classmethod
    def of(cls, name: str, trace: LayerTrace, *, detail: bool) -> Self:
        """From what routing did in the layer."""
        return cls(
            name=name,
            iterations=[
                HiddenIteration(
                    activations=rounded(maps.mean(axis=(1, 2))),
                    maps=rounded(maps) if detail else None,
                    assignments=rounded(shares),
                )
                for maps, shares in zip(trace.presence, trace.couplings, strict=True)
            ],
        )


class RoutingAnswer(CapsuleAnswer):
    """How the capsules came to agree, iteration by iteration.

    Input capsule i has type t, row y and column x: i = (t * rows + y) * columns + x.
    """

    types: int = Field(description="T, of the capsules that vote for classes.")
    rows: int = Field(description="Of the grid on which they sit.")
    columns: int
    iterations: list[RoutingIteration]
    heat_maps: HeatMaps
    votes: Votes
    layers: list[HiddenLayer] = Field(
        description="Routed layers before the last one; only matrix capsules have any."
    )

    @classmethod
    def of(cls, manifest: Manifest, view: RoutingView, *, detail: bool) -> Self:
        """From a traced picture."""
        layer, classes = manifest.layers[-1], view.trace.classes
        return cls(
            **cls.about(manifest, view.capsule),
            types=layer.types,
            rows=layer.rows,
            columns=layer.columns,
            iterations=[
                RoutingIteration(
                    lengths=rounded(classes.presence[step]),
                    agreement=rounded(view.agreement[step]),
                    entropy=rounded(view.entropy[step]),
                    couplings=rounded(classes.couplings[step]) if detail else None,
                    logits=rounded(classes.logits[step]) if detail else None,
                )
                for step in range(layer.iterations)
            ],
            heat_maps=HeatMaps(
                grid=rounded(agreement.on_grid(view.support, layer)),
                types=rounded(agreement.by_type(view.support, layer)),
            ),
            votes=Votes(
                explained=rounded(view.projection.explained),
                points=rounded(view.projection.points) if detail else None,
                couplings=rounded(view.weights[view.capsule.label]) if detail else None,
            ),
            layers=[
                HiddenLayer.of(name, trace, detail=detail)
                for name, trace in view.trace.hidden.items()
            ],
        )
