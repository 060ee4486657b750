"""`POST /reconstruct`."""

from __future__ import annotations

from functools import partial

import numpy as np
from pydantic import Field

from service.http.route import JsonOrPng, Request
from service.pictures import encode_png
from service.views.schemas import CapsuleAnswer, DataUrl, Number, Scale, TargetQuery, answer_fields
from service.views.view import View


class ReconstructQuery(TargetQuery):
    """The parameters of `/reconstruct`."""

    scale: Scale = 1


class ReconstructAnswer(CapsuleAnswer):
    """The reconstruction of one class's pose."""

    input: DataUrl = Field(description="The image as the network saw it.")
    reconstruction: DataUrl
    error: Number = Field(description="Mean squared error, all channels, pixels in [0, 1].")


async def reconstruct(request: Request, query: ReconstructQuery) -> JsonOrPng[ReconstructAnswer]:
    """Reconstruct the image from the pose of one class capsule."""
    manifest = request.pipeline.manifest(query.model, needs="decode")
    capsule = await query.read_capsule(request, manifest, extra_rows=1)
    (image,) = await request.pipeline.decode(manifest, capsule.pose[None], capsule.label)
    seen = capsule.prepared.image
    error = np.square(image - seen).mean()
    fields = answer_fields(manifest, capsule, input=seen, reconstruction=image, error=error)
    draw = partial(encode_png, image, scale=query.scale)
    return JsonOrPng(partial(ReconstructAnswer, **fields), manifest, draw)


VIEW = View(path="/reconstruct", handler=reconstruct, needs="decode", max_cost=2, tag="classify")
