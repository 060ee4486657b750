"""`POST /segment`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, Field

from model.bundle import Manifest
from model.interpret.segmentation import candidates, paint, segment
from service.errors import InvalidParameter, UnknownModel, unwrap
from service.http.route import JsonOrPng, Request
from service.http.uploads import read_picture
from service.pictures import encode_png
from service.pipeline import Pipeline
from service.views.schemas import (
    DataUrl,
    FitReport,
    ModelAnswer,
    Number,
    PictureQuery,
    Scale,
    answer_fields,
)
from service.views.view import View

MAX_SEGMENTS = 100


class SegmentQuery(PictureQuery):
    """The parameters of `/segment`."""

    model: str | None = Field(None, description="A bundle for overlapping digits.")
    count: Annotated[int, Field(ge=1, le=MAX_SEGMENTS)] | Literal["auto"] = Field(
        2,
        description="Number of classes to return, longest capsules first. `auto` returns those "
        "that are long and explain enough of the image beyond longer ones; perhaps none.",
    )
    scale: Scale = 1


class Segment(BaseModel):
    """One detected class."""

    label: int
    class_name: str
    length: Number = Field(description="Confidence, in [0, 1).")
    mask: DataUrl = Field(
        description="White where the digit gets at least `mask_threshold` of the ink around the "
        "pixel, which the returned digits divide. A pixel may belong to several."
    )
    reconstruction: DataUrl = Field(description="Its capsule, decoded alone.")
    ink_share: Number = Field(
        description="Share of the ink in the mask; shared ink counts in each."
    )


class SegmentAnswer(ModelAnswer):
    """An image of overlapping digits, taken apart."""

    segments: list[Segment] = Field(description="The longest capsule first.")
    explained_ink: Number = Field(description="Share of the ink that is in any mask.")
    fit: FitReport


async def segment_image(request: Request, query: SegmentQuery) -> JsonOrPng[SegmentAnswer]:
    """Segment overlapping digits (paper, section 6)."""
    manifest, threshold = _manifest(request.pipeline, query.model)
    count = query.count
    if count != "auto" and count > manifest.num_classes:
        raise InvalidParameter(f"count is at most {manifest.num_classes}", parameter="count")
    upload = await read_picture(request)
    most = min(manifest.num_classes, MAX_SEGMENTS) if count == "auto" else count
    request.pipeline.admit(1 + most)
    spec = query.spec(manifest)
    (read,) = await request.pipeline.encode_uploads([upload], manifest, spec)
    encoded = unwrap(read)
    labels = candidates(encoded.presence, count)
    decoded = await request.pipeline.decode(manifest, encoded.poses[labels], labels)
    image = encoded.prepared.image
    segmentation = segment(
        image[0], encoded.presence, labels, decoded[:, 0], threshold=threshold, count=count
    )
    segments = [
        {
            "label": label,
            "class_name": manifest.class_names[label],
            "length": encoded.presence[label],
            "mask": mask[None].astype(np.float32),
            "reconstruction": reconstruction[None],
            "ink_share": share,
        }
        for label, mask, reconstruction, share in zip(*segmentation[:4], strict=True)
    ]
    fit, ink = encoded.prepared, segmentation.explained_ink
    answer = partial(
        SegmentAnswer, **answer_fields(manifest, segments=segments, explained_ink=ink, fit=fit)
    )
    painted = paint(image, segmentation.reconstructions)
    return JsonOrPng(answer, manifest, partial(encode_png, painted, scale=query.scale))


def _manifest(pipeline: Pipeline, model: str | None) -> tuple[Manifest, float]:
    """Find the named model for overlapping digits, or the first by name, and its threshold."""
    suited = sorted(
        name
        for name, manifest in pipeline.engine.manifests.items()
        if manifest.mask_threshold is not None
    )
    if not (model or suited):
        raise UnknownModel("no model for overlapping digits is loaded", parameter="model")
    manifest = pipeline.manifest(model or suited[0], needs="decode")
    if manifest.mask_threshold is None:
        raise InvalidParameter(
            f"{model!r} was not trained on overlapping digits; loaded models that were: "
            f"{', '.join(suited) or 'none'}",
            parameter="model",
        )
    return manifest, manifest.mask_threshold


VIEW = View(
    path="/segment",
    handler=segment_image,
    needs="decode",
    max_cost=1 + MAX_SEGMENTS,
    tag="classify",
    example="/overlay?first=3&second=5",
)
