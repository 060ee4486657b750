"""Reconstruct an image from one pose."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from model.canvas import draw_image
from model.preprocess import Prepared
from model.views.answers import CapsuleAnswer, DataUrl, Number, answer_fields
from model.views.net import Net, encode_picture
from model.views.view import Scale, TargetQuery, View


class ReconstructQuery(TargetQuery):
    """The parameters of `reconstruct`."""

    scale: Scale = 1

    max_rows = 1


class ReconstructAnswer(CapsuleAnswer):
    """The reconstruction of one class's pose."""

    input: DataUrl = Field(description="The image as the network saw it.")
    reconstruction: DataUrl
    error: Number = Field(description="Mean squared error, all channels, pixels in [0, 1].")


async def reconstruct(net: Net, query: ReconstructQuery, picture: Prepared) -> ReconstructAnswer:
    """Reconstruct the image from the pose of one class capsule."""
    capsule = (await encode_picture(net, picture)).capsule(query.target)
    (image,) = await net.decode(capsule.pose[None], capsule.label)
    return ReconstructAnswer(
        **answer_fields(net.manifest, capsule),
        input=picture.image,
        reconstruction=image,
        error=np.square(image - picture.image).mean(),
    )


def draw_reconstruction(answer: ReconstructAnswer, scale: int) -> bytes:
    """The reconstruction."""
    return draw_image(answer.reconstruction, scale)


VIEW = View(
    reconstruct,
    draw=draw_reconstruction,
    needs="decode",
    tag="classify",
)
