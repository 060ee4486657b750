"""Classify images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from model.bundle import Manifest
from model.bundle.confidence import COVERAGES
from model.errors import InvalidParameter, Problem, unwrap
from model.outputs import Encoding
from model.preprocess import Floats, Prepared
from model.views.answers import (
    DECIMALS,
    FitReport,
    Json,
    ModelAnswer,
    Number,
    Part,
    Poses,
    Vector,
    answer_fields,
    is_none,
)
from model.views.net import Encoded, Net, require
from model.views.novelty import NoveltyReport, score_encoded
from model.views.view import FEW_PICTURES, PictureQuery, View, useless_sets


class ClassifyQuery(PictureQuery):
    """The parameters of `classify`."""

    poses: bool = Field(False, description="Adds the poses of all classes.")
    novelty: bool = Field(False, description="Adds the novelty score.")
    coverage: float | None = Field(
        None,
        ge=COVERAGES[0],
        le=COVERAGES[-1],
        allow_inf_nan=False,
        description="Adds the probability, and a set of labels that holds the true one with this "
        "coverage, such as 0.95.",
    )

    max_rows = 1

    def check(self, manifest: Manifest) -> None:
        """Refuse a network without poses, or without a novelty rule, where these are asked for."""
        if self.poses or self.novelty:
            require(manifest, "decode")
        if self.novelty and manifest.novelty is None:
            detail = f"the bundle {manifest.name!r} has no novelty rule"
            raise InvalidParameter(detail, parameter="novelty")
        confidence = manifest.confidence
        if self.coverage is None:
            return
        if confidence is None:
            detail = f"the bundle {manifest.name!r} has no calibration"
            raise InvalidParameter(detail, parameter="coverage")
        if self.coverage > confidence.coverages[-1]:
            detail = f"{manifest.name!r} has sets of a coverage up to {confidence.coverages[-1]:g}"
            raise InvalidParameter(detail, parameter="coverage")

    def rows(self, manifest: Manifest) -> int:  # noqa: ARG002
        """If novelty is asked for, each image is decoded."""
        return int(self.novelty)

    def any_size(self, manifest: Manifest) -> bool:
        """Novelty compares reconstructions, which have the network's size."""
        return manifest.any_size and not self.novelty


class SetLabel(Part):
    """A label in a set."""

    label: int
    class_name: str


class Prediction(Part):
    """The network's answer for one image."""

    label: int
    class_name: str
    length: Number = Field(description="Confidence in the label, in [0, 1].")
    lengths: Vector = Field(
        description="Presence of all K classes, by label: see `presence` of `GET /models`."
    )
    probability: float | None = Field(
        None,
        description="With coverage=: calibrated chance that the label is right, for images like "
        "those of the calibration.",
        exclude_if=is_none,
    )
    labels: list[SetLabel] | None = Field(
        None,
        description="With coverage=: a set of labels that holds the true label with this "
        "coverage, the most probable label first.",
        exclude_if=is_none,
    )
    poses: Poses | None = Field(
        None, description="All K poses, with poses=true.", exclude_if=is_none
    )
    novelty: NoveltyReport | None = Field(
        None, description="With novelty=true.", exclude_if=is_none
    )
    fit: FitReport


class PredictionAnswer(Prediction, ModelAnswer):
    """The network's answer for one image, and the model that answers."""


class ProblemDetails(Part):
    """RFC 9457 problem details."""

    type: str
    title: str
    status: int
    detail: str | None = Field(None, exclude_if=is_none)
    parameter: str | None = Field(None, description="The parameter at fault.", exclude_if=is_none)
    request_id: str | None = Field(None, exclude_if=is_none)


class FailedPrediction(Part):
    """The reason why one image of several has no prediction."""

    problem: ProblemDetails


class ClassifyAnswer(ModelAnswer):
    """The predictions of all images, in order."""

    predictions: list[Prediction | FailedPrediction]

    def each(self) -> list[PredictionAnswer | FailedPrediction]:
        """The outcome of each image, with the model that answers."""
        return [
            outcome
            if isinstance(outcome, FailedPrediction)
            else PredictionAnswer.model_construct(
                None, model=self.model, version=self.version, notes=self.notes, **vars(outcome)
            )
            for outcome in self.predictions
        ]


async def classify(net: Net, query: ClassifyQuery, *pictures: Prepared | Problem) -> ClassifyAnswer:
    """Classify images by the lengths of the class capsules.

    For several images, the answer has an entry for each, in order. If one of them cannot be read,
    its entry has a `problem` in place of the prediction.
    """
    prepared = [picture for picture in pictures if isinstance(picture, Prepared)]
    rows = await net.encode([picture.image for picture in prepared]) if prepared else ()
    if len(pictures) == 1:
        rows = list(map(unwrap, rows))
    encoded = iter(
        row if isinstance(row, Problem) else Encoded(picture, *unwrap(row))
        for picture, row in zip(prepared, rows, strict=True)
    )
    outcomes = [picture if isinstance(picture, Problem) else next(encoded) for picture in pictures]
    novelties = await _score(net, outcomes) if query.novelty else None
    form = (net.manifest, outcomes, novelties, query)
    if len(prepared) > FEW_PICTURES:
        return await net.aside(_answer, *form)
    return _answer(*form)


def _answer(
    manifest: Manifest,
    outcomes: Sequence[Encoded | Problem],
    novelties: Sequence[NoveltyReport] | None,
    query: ClassifyQuery,
) -> ClassifyAnswer:
    scored = iter(novelties or ())
    predictions = [
        FailedPrediction(problem=ProblemDetails(**outcome.to_dict()))
        if isinstance(outcome, Problem)
        else _predict(manifest, outcome, next(scored, None), query)
        for outcome in outcomes
    ]
    notes = useless_sets(manifest, query.coverage)
    return ClassifyAnswer(**answer_fields(manifest), notes=notes, predictions=predictions)


def _predict(
    manifest: Manifest, encoded: Encoded, novelty: NoveltyReport | None, query: ClassifyQuery
) -> Prediction:
    capsule = encoded.capsule()
    fields = {
        "label": capsule.label,
        "class_name": manifest.class_names[capsule.label],
        "length": capsule.presence,
        "lengths": encoded.presence,
        "poses": encoded.poses if query.poses else None,
        "novelty": novelty,
        "fit": encoded.prepared,
        **_confidence(manifest, encoded.presence, query.coverage),
    }
    return Prediction.model_validate(fields)


def _confidence(manifest: Manifest, presence: Floats, coverage: float | None) -> Json:
    """The probability of the answer and its set of labels, by presence (K,)."""
    confidence = manifest.confidence
    if coverage is None or confidence is None:
        return {}
    chosen = np.flatnonzero(confidence.find_labels(presence[None], coverage)[0])
    order = chosen[np.argsort(-presence[chosen], kind="stable")].tolist()
    labels = [{"label": label, "class_name": manifest.class_names[label]} for label in order]
    probability = float(confidence.find_probability(presence[None])[0])
    return {"probability": round(probability, DECIMALS), "labels": labels}


async def _score(net: Net, outcomes: Sequence[Encoded | Problem]) -> list[NoveltyReport]:
    """The novelty of each image that could be read."""
    images = [outcome for outcome in outcomes if isinstance(outcome, Encoded)]
    if not images:
        return []
    prepared, presence, poses = zip(*images, strict=True)
    seen = np.stack([picture.image for picture in prepared])
    return await score_encoded(net, seen, Encoding(np.stack(presence), np.stack(poses)))


VIEW = View(
    classify,
    pictures=(1, None),
    may_need="decode",
    tag="classify",
)
