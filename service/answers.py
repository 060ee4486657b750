"""The JSON answers of the API, field by field."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, Field

from model.bundle import Manifest
from model.bundle.manifest import Offer, PresenceKind
from model.interpret.dimensions import DimensionName
from model.preprocess import Floats, Prepared
from service.images import encode_png
from service.inside.novelty import Novelty
from service.inspector import Capsule, Encoded, Perturbation, Reconstruction
from service.problems import Problem

DECIMALS = 6

Lengths = Annotated[
    list[float],
    Field(description="Presence of all K classes, by label: see `presence` of `GET /models`."),
]
Pose = Annotated[list[float], Field(description="The class capsule, D numbers.")]
DataUrl = Annotated[str, Field(description="A PNG as data:image/png;base64,…")]


class FitReport(BaseModel):
    """What was done to the picture before the network saw it."""

    fit: Literal["none", "stretch", "crop", "digit", "pair"]
    polarity: Literal["light-on-dark", "dark-on-light"] | None = Field(
        description="As it came; null for photographs."
    )
    box: tuple[int, int, int, int] | None = Field(
        description="Left, top, right and bottom of the strokes, in pixels of the decoded picture; "
        "null where they were not looked for or nothing was found."
    )

    @classmethod
    def of(cls, prepared: Prepared) -> Self:
        """The report on one prepared picture."""
        return cls(fit=prepared.fit, polarity=prepared.polarity, box=prepared.box)


class ProblemDetails(BaseModel):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str | None = None
    parameter: str | None = Field(None, description="The parameter at fault.")
    request_id: str | None = None


class FamiliarityReport(BaseModel):
    """Whether a picture looks like those that the network was trained on.

    A rank is the share of known pictures that are at least as odd: 0.01 means that 99 % of them
    look less odd.
    """

    known: bool = Field(description="Whether the score is one that 99 % of known pictures reach.")
    score: float = Field(description="The lowest of the three ranks.")
    length_rank: float = Field(description="Of the longest capsule's length.")
    margin_rank: float = Field(description="Of its lead over the second longest.")
    error_rank: float = Field(description="Of the error of its reconstruction.")
    error: float = Field(description="Squared error of the reconstruction, as a share of the ink.")

    @classmethod
    def of(cls, novelty: Novelty) -> Self:
        """From a comparison."""
        values = asdict(novelty)
        return cls(known=values.pop("known"), **{k: rounded(v) for k, v in values.items()})


class Prediction(BaseModel):
    """What the network says of one picture."""

    label: int
    class_name: str
    length: float = Field(description="Of the label: how sure, in [0, 1].")
    lengths: Lengths
    poses: list[Pose] | None = Field(None, description="All K poses, with poses=true.")
    familiarity: FamiliarityReport | None = Field(None, description="With known=true.")
    fit: FitReport

    @classmethod
    def of(
        cls, manifest: Manifest, encoded: Encoded, novelty: Novelty | None, *, poses: bool
    ) -> Self:
        """From an encoded picture; with all poses, if they are wanted."""
        label = int(encoded.presence.argmax())
        lengths = rounded(encoded.presence)
        return cls(
            label=label,
            class_name=manifest.class_names[label],
            length=lengths[label],
            lengths=lengths,
            poses=rounded(encoded.poses) if poses else None,
            familiarity=None if novelty is None else FamiliarityReport.of(novelty),
            fit=FitReport.of(encoded.prepared),
        )


class FailedPrediction(BaseModel):
    """Why one picture of several has no prediction."""

    problem: ProblemDetails

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """From the problem."""
        return cls(problem=ProblemDetails(**problem.to_dict()))


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

    @staticmethod
    def about(manifest: Manifest, capsule: Capsule) -> dict[str, Any]:
        """These fields, for one capsule."""
        return {
            "model": manifest.name,
            "version": manifest.version,
            "label": capsule.label,
            "class_name": manifest.class_names[capsule.label],
            "length": rounded(capsule.presence),
            "fit": FitReport.of(capsule.encoded.prepared),
        }


class ClassifyAnswer(BundleAnswer):
    """One entry for each picture, in order."""

    predictions: list[Prediction | FailedPrediction]


class ReconstructAnswer(CapsuleAnswer):
    """What the network imagined."""

    input: DataUrl = Field(description="The picture as the network saw it.")
    reconstruction: DataUrl
    error: float = Field(
        description="Mean squared error against the input over all channels, pixels in [0, 1]."
    )

    @classmethod
    def of(cls, manifest: Manifest, reconstruction: Reconstruction) -> Self:
        """From a decoded capsule."""
        image, seen = reconstruction.image, reconstruction.encoded.prepared.image
        return cls(
            **cls.about(manifest, reconstruction),
            input=data_url(seen),
            reconstruction=data_url(image),
            error=rounded(np.square(image - seen).mean()),
        )


class Meaning(BaseModel):
    """What a pose dimension was found to do; measured when the bundle was made."""

    name: DimensionName
    sign: int = Field(description="1: growing gives more of it; -1: less; 0: neither.")
    strength: float = Field(description="Share of the picture's change that the name explains.")
    effect: str = Field(description="What the picture does as the dimension grows; may be empty.")

    @classmethod
    def of(cls, manifest: Manifest, label: int, dim: int) -> Self | None:
        """From the manifest, if it tells."""
        one = manifest.meaning(label, dim)
        if one is None:
            return None
        return cls(name=one.name, sign=one.sign, strength=one.strength, effect=one.effect)


class PerturbAnswer(CapsuleAnswer):
    """A picture before and after one pose dimension was moved."""

    dim: int
    delta: float
    meaning: Meaning | None = Field(description="Null where the bundle does not tell.")
    pose: Pose
    perturbed_pose: Pose
    reconstruction: DataUrl
    perturbed: DataUrl

    @classmethod
    def of(cls, manifest: Manifest, perturbation: Perturbation) -> Self:
        """From a decoded capsule and its neighbour."""
        reconstruction = perturbation.reconstruction
        return cls(
            **cls.about(manifest, reconstruction),
            dim=perturbation.dim,
            delta=perturbation.delta,
            meaning=Meaning.of(manifest, reconstruction.label, perturbation.dim),
            pose=rounded(reconstruction.pose),
            perturbed_pose=rounded(perturbation.pose),
            reconstruction=data_url(reconstruction.image),
            perturbed=data_url(perturbation.image),
        )


class ModelSummary(BaseModel):
    """One loaded bundle."""

    name: str
    version: str = Field(description="Of the weights.")
    family: str = Field(description="The kind of network.")
    dataset: str
    class_names: list[str]
    channels: int = Field(description="Of the network's images: 1 for grey, 3 for colour.")
    height: int = Field(description="Of the network's images, in pixels.")
    width: int
    class_dim: int = Field(description="D, the size of a pose; 0 where there are none.")
    presence: PresenceKind = Field(description="What `length` and `lengths` in answers are.")
    offers: list[Offer] = Field(
        description="Beside classifying: `decode` for reconstructions, perturbations, sweeps and "
        "segments, `trace` for `/routing`."
    )
    default: bool = Field(description="Whether requests that name no model are answered by it.")
    metrics: dict[str, Any]

    @classmethod
    def of(cls, manifest: Manifest, *, default: bool) -> Self:
        """From a bundle's manifest."""
        names = cls.model_fields.keys() - {"default"}
        return cls(default=default, **{name: getattr(manifest, name) for name in names})


class ModelsAnswer(BaseModel):
    """All loaded bundles."""

    provider: str = Field(description="The onnxruntime provider in use.")
    models: list[ModelSummary]


class Liveness(BaseModel):
    """The process is up."""

    status: Literal["alive"] = "alive"


class Readiness(BaseModel):
    """The service takes requests."""

    status: Literal["ready"] = "ready"
    provider: str
    models: list[str]


def rounded(values: Any) -> Any:
    """A float32 array or scalar as Python floats, without the digits that float32 never had."""
    return np.asarray(values, np.float64).round(DECIMALS).tolist()


def data_url(image: Floats) -> str:
    """An image (C, H, W) in [0, 1] as a PNG data URL."""
    return f"data:image/png;base64,{base64.b64encode(encode_png(image)).decode()}"
