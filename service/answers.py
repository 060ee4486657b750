"""The JSON answers of the API, field by field."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from model.bundle import Manifest
from model.dimensions import DimensionName
from model.preprocess import Prepared
from service.images import encode_png
from service.inside.recognition import Recognition
from service.inspector import Perturbation, Portrait, Reading
from service.problems import Problem

DECIMALS = 6

Lengths = Annotated[list[float], Field(description="All K capsule lengths, by label.")]
Pose = Annotated[list[float], Field(description="The class capsule, D numbers.")]
DataUrl = Annotated[str, Field(description="A PNG as data:image/png;base64,…")]


class FitReport(BaseModel):
    """What was done to the picture before the network saw it."""

    fit: Literal["none", "stretch", "digit", "pair"]
    polarity: Literal["light-on-dark", "dark-on-light"] = Field(description="As it came.")
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
    error_rank: float = Field(description="Of the error of its drawing.")
    error: float = Field(description="Squared error of the drawing, as a share of the ink.")

    @classmethod
    def of(cls, recognition: Recognition) -> Self:
        """From a comparison."""
        values = asdict(recognition)
        return cls(known=values.pop("known"), **{k: rounded(v) for k, v in values.items()})


class Prediction(BaseModel):
    """What the network says of one picture."""

    label: int
    class_name: str
    length: float = Field(description="Length of the label's capsule: how sure, in [0, 1).")
    lengths: Lengths
    poses: list[Pose] | None = Field(None, description="All K poses, with poses=true.")
    familiarity: FamiliarityReport | None = Field(None, description="With known=true.")
    fit: FitReport

    @classmethod
    def of(
        cls, manifest: Manifest, reading: Reading, recognition: Recognition | None, *, poses: bool
    ) -> Self:
        """From a reading; with all poses, if they are wanted."""
        label = int(reading.lengths.argmax())
        lengths = rounded(reading.lengths)
        return cls(
            label=label,
            class_name=manifest.class_names[label],
            length=lengths[label],
            lengths=lengths,
            poses=rounded(reading.poses) if poses else None,
            familiarity=None if recognition is None else FamiliarityReport.of(recognition),
            fit=FitReport.of(reading.prepared),
        )


class FailedPrediction(BaseModel):
    """Why one picture of several has no prediction."""

    problem: ProblemDetails

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """From the problem."""
        return cls(problem=ProblemDetails(**problem.to_dict()))


class ClassifyAnswer(BaseModel):
    """One entry for each picture, in order."""

    model: str
    predictions: list[Prediction | FailedPrediction]


class ReconstructAnswer(BaseModel):
    """What the network imagined."""

    model: str
    label: int = Field(description="The class whose capsule was decoded.")
    class_name: str
    length: float
    input: DataUrl = Field(description="The picture as the network saw it.")
    reconstruction: DataUrl
    error: float = Field(description="Mean squared error against the input, pixels in [0, 1].")
    fit: FitReport

    @classmethod
    def of(cls, manifest: Manifest, portrait: Portrait) -> Self:
        """From a decoded capsule."""
        prepared = portrait.reading.prepared
        return cls(
            model=manifest.name,
            label=portrait.label,
            class_name=manifest.class_names[portrait.label],
            length=rounded(portrait.reading.lengths[portrait.label]),
            input=data_url(prepared.image[0]),
            reconstruction=data_url(portrait.image),
            error=rounded(np.square(portrait.image - prepared.image[0]).mean()),
            fit=FitReport.of(prepared),
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


class PerturbAnswer(BaseModel):
    """A picture before and after one pose dimension was moved."""

    model: str
    label: int
    class_name: str
    length: float
    dim: int
    delta: float
    meaning: Meaning | None = Field(description="Null where the bundle does not tell.")
    pose: Pose
    perturbed_pose: Pose
    reconstruction: DataUrl
    perturbed: DataUrl
    fit: FitReport

    @classmethod
    def of(cls, manifest: Manifest, perturbation: Perturbation) -> Self:
        """From a decoded capsule and its neighbour."""
        portrait = perturbation.portrait
        return cls(
            model=manifest.name,
            label=portrait.label,
            class_name=manifest.class_names[portrait.label],
            length=rounded(portrait.reading.lengths[portrait.label]),
            dim=perturbation.dim,
            delta=perturbation.delta,
            meaning=Meaning.of(manifest, portrait.label, perturbation.dim),
            pose=rounded(portrait.pose),
            perturbed_pose=rounded(perturbation.pose),
            reconstruction=data_url(portrait.image),
            perturbed=data_url(perturbation.image),
            fit=FitReport.of(portrait.reading.prepared),
        )


class ModelSummary(BaseModel):
    """One loaded bundle."""

    name: str
    dataset: str
    class_names: list[str]
    image_size: int = Field(description="Height and width of the network's images, in pixels.")
    class_dim: int = Field(description="D, the size of a pose.")
    default: bool = Field(description="Whether requests that name no model are answered by it.")
    metrics: dict[str, Any]

    @classmethod
    def of(cls, manifest: Manifest, *, default: bool) -> Self:
        """From a bundle's manifest."""
        return cls(
            name=manifest.name,
            dataset=manifest.dataset,
            class_names=list(manifest.class_names),
            image_size=manifest.image_size,
            class_dim=manifest.class_dim,
            default=default,
            metrics=manifest.metrics,
        )


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


def data_url(image: NDArray[np.float32]) -> str:
    """An image (H, W) in [0, 1] as a PNG data URL."""
    return f"data:image/png;base64,{base64.b64encode(encode_png(image)).decode()}"
