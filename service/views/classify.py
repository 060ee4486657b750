"""`POST /classify`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import repeat

import numpy as np
from pydantic import BaseModel, Field

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.interpret.novelty import Novelty
from model.runtime import Encoding
from service.errors import InvalidParameter, Problem, unwrap
from service.http.problems import ProblemDetails
from service.http.route import RESPONSE_COST_ROWS, DeferredJson, Request
from service.http.uploads import read_pictures
from service.pipeline import Encoded
from service.views.schemas import (
    FitReport,
    ModelAnswer,
    PictureQuery,
    Pose,
    Report,
    answer_fields,
    rounded,
)
from service.views.view import View

_FEW = 4
"""The predictions of this many images are formed on the event loop."""


class ClassifyQuery(PictureQuery):
    """The parameters of `/classify`."""

    poses: bool = Field(False, description="Adds the poses of all classes.")
    novelty: bool = Field(False, description="Adds the novelty score.")


class NoveltyReport(Report):
    """The novelty scores of an image: how unlike the training images it is.

    Each score is the share of training images that are less unusual: 0.99 means 99 % of them.
    """

    novel: bool = Field(description="Whether 95 % of training images have a lower score.")
    score: float = Field(description="The highest of the four scores below.")
    length_score: float = Field(description="By the longest capsule's length.")
    margin_score: float = Field(description="By its lead over the second longest.")
    error_score: float = Field(description="By the error of its reconstruction.")
    distance_score: float | None = Field(
        None, description="By the Mahalanobis distance of the poses."
    )
    error: float = Field(description="Of the reconstruction y of x: sum((x-y)^2) / (sum(x^2) + 1).")


class Prediction(BaseModel):
    """The network's answer for one image."""

    label: int
    class_name: str
    length: float = Field(description="Confidence in the label, in [0, 1].")
    lengths: list[float] = Field(
        description="Presence of all K classes, by label: see `presence` of `GET /models`."
    )
    poses: list[Pose] | None = Field(None, description="All K poses, with poses=true.")
    novelty: NoveltyReport | None = Field(None, description="With novelty=true.")
    fit: FitReport


class FailedPrediction(BaseModel):
    """The reason why one image of several has no prediction."""

    problem: ProblemDetails


class ClassifyAnswer(ModelAnswer):
    """The predictions of all images, in order."""

    predictions: list[Prediction | FailedPrediction]


async def classify(request: Request, query: ClassifyQuery) -> DeferredJson[ClassifyAnswer]:
    """Classify images by the lengths of the class capsules.

    There is an entry for each, in order. Of several, one that cannot be read has a problem there.
    """
    needs: Offer | None = "decode" if query.poses or query.novelty else None
    manifest = request.pipeline.manifest(query.model, needs=needs)
    if query.novelty and manifest.novelty is None:
        detail = f"the bundle {manifest.name!r} has no novelty rule"
        raise InvalidParameter(detail, parameter="novelty")
    takes_any_size = manifest.any_size and not query.novelty  # that compares reconstructions
    spec = query.spec(manifest)._replace(any_size=takes_any_size)
    uploads = await request.pipeline.decode_pools.check(await read_pictures(request), spec)
    files = sum(isinstance(upload, bytes) for upload in uploads)
    large = files > _FEW
    rows = files * (2 if query.novelty else 1) + large * RESPONSE_COST_ROWS
    request.pipeline.admit(rows, files=len(uploads))
    encoded = await request.pipeline.encode_uploads(uploads, manifest, spec)
    if len(encoded) == 1:
        unwrap(encoded[0])
    novelty = await _judge(request, manifest, encoded) if query.novelty else repeat(None)
    return DeferredJson(
        partial(_answer, manifest, encoded, novelty, poses=query.poses), large=large
    )


def _answer(
    manifest: Manifest,
    encoded: list[Encoded | Problem],
    novelty: Iterable[Novelty | None],
    *,
    poses: bool,
) -> ClassifyAnswer:
    novelties = iter(novelty)
    predictions = [
        FailedPrediction(problem=ProblemDetails(**entry.to_dict()))
        if isinstance(entry, Problem)
        else _predict(manifest, entry, next(novelties), poses=poses)
        for entry in encoded
    ]
    return ClassifyAnswer(**answer_fields(manifest, predictions=predictions))


def _predict(
    manifest: Manifest, one: Encoded, novelty: Novelty | None, *, poses: bool
) -> Prediction:
    label, lengths = int(one.presence.argmax()), rounded(one.presence)
    fields = {
        "label": label,
        "class_name": manifest.class_names[label],
        "length": lengths[label],
        "lengths": lengths,
        "poses": list(one.poses) if poses else None,
        "novelty": novelty,
        "fit": one.prepared,
    }
    return Prediction.model_validate(fields)


async def _judge(
    request: Request, manifest: Manifest, encoded: list[Encoded | Problem]
) -> list[Novelty]:
    """The novelty of each image that could be read."""
    images = [entry for entry in encoded if isinstance(entry, Encoded)]
    if not images:
        return []
    prepared, presence, poses = zip(*images, strict=True)
    encoding = Encoding(np.stack(presence), np.stack(poses))
    return await request.pipeline.score_novelty(
        manifest, np.stack([item.image for item in prepared]), encoding
    )


VIEW = View(
    path="/classify",
    handler=classify,
    # Each image is encoded and, for its novelty, decoded.
    max_cost=lambda max_pictures: 2 * max_pictures + RESPONSE_COST_ROWS,
    tag="classify",
    images=(1, None),
)
