"""`POST /reconstruct`."""

from __future__ import annotations

from functools import partial

import numpy as np
from pydantic import Field

from service.api.answers import CapsuleAnswer, DataUrl, about, data_url, rounded
from service.api.queries import Scale, TargetQuery
from service.http.route import Call, View
from service.pictures.decode import encode_png


class ReconstructQuery(TargetQuery):
    """Of `/reconstruct`."""

    scale: Scale = 1


class ReconstructAnswer(CapsuleAnswer):
    """What the network imagined."""

    input: DataUrl = Field(description="The picture as the network saw it.")
    reconstruction: DataUrl
    error: float = Field(description="Mean squared error, all channels, pixels in [0, 1].")


async def reconstruct(call: Call, query: ReconstructQuery) -> View[ReconstructAnswer]:
    """Draw what the network imagines: the decoded pose of one class capsule."""
    manifest = call.inspector.manifest(query.model, needs="decode")
    capsule = await query.read_capsule(call, manifest, further=1)
    (image,) = await call.inspector.decode(manifest, capsule.pose[None], capsule.label)
    seen = capsule.prepared.image

    def answer() -> ReconstructAnswer:
        return ReconstructAnswer(
            **about(manifest, capsule),
            input=data_url(seen),
            reconstruction=data_url(image),
            error=rounded(np.square(image - seen).mean()),
        )

    return View(manifest, answer, partial(encode_png, image, scale=query.scale))
