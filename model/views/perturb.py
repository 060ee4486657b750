"""Move one pose dimension."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from model.bundle import Manifest
from model.canvas import draw_image
from model.errors import InvalidParameter
from model.preprocess import Prepared
from model.views.answers import CapsuleAnswer, DataUrl, Meaning, Pose, answer_fields
from model.views.net import Net, encode_picture
from model.views.query import Delta, Index, Scale, TargetQuery
from model.views.view import View


class PerturbQuery(TargetQuery):
    """The parameters of `perturb`."""

    scale: Scale = 1
    dim: Index = Field(description="The pose dimension to move, counted from 0.", examples=[4])
    delta: Delta = Field(
        description="The change of this dimension, in the paper -0.25 to 0.25.", examples=[0.1]
    )

    max_rows = 2

    def check(self, manifest: Manifest) -> None:
        """Refuse a dimension that the poses do not have."""
        if self.dim >= manifest.class_dim:
            raise InvalidParameter(f"dim is 0 to {manifest.class_dim - 1}", parameter="dim")
        super().check(manifest)

    def rows(self, manifest: Manifest) -> int:  # noqa: ARG002
        """Both poses are decoded."""
        return 2


class PerturbAnswer(CapsuleAnswer):
    """An image before and after one pose dimension was moved."""

    dim: int
    delta: float
    meaning: Meaning | None = Field(description="Null if the bundle does not name the dimension.")
    pose: Pose
    perturbed_pose: Pose
    reconstruction: DataUrl
    perturbed: DataUrl


async def perturb(net: Net, query: PerturbQuery, picture: Prepared) -> PerturbAnswer:
    """Move one pose dimension and decode (paper, section 5.1)."""
    capsule = (await encode_picture(net, picture)).capsule(query.target)
    poses = np.stack((capsule.pose, capsule.pose))
    poses[1, query.dim] += query.delta
    images = await net.decode(poses, capsule.label)
    return PerturbAnswer(
        **answer_fields(net.manifest, capsule),
        dim=query.dim,
        delta=query.delta,
        meaning=Meaning.of(net.manifest.meaning(capsule.label, query.dim)),
        pose=poses[0],
        perturbed_pose=poses[1],
        reconstruction=images[0],
        perturbed=images[1],
    )


def draw(answer: PerturbAnswer, query: PerturbQuery) -> bytes:
    """The image after the dimension was moved."""
    return draw_image(answer.perturbed, query.scale)


VIEW = View(
    name="perturb",
    query=PerturbQuery,
    answer=PerturbAnswer,
    compute=perturb,
    draw=draw,
    plain=True,
    needs="decode",
)
