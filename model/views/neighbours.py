"""Find the training images with the nearest poses, and the prototypes of a class.

Poses are compared after whitening, which divides each direction by the spread of the class's poses
along it. The Euclidean distance is then the Mahalanobis distance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from model.bundle import Manifest
from model.bundle.poses import PROTOTYPES
from model.errors import NotOffered
from model.preprocess import Floats, Prepared, scale
from model.views.answers import CapsuleAnswer, DataUrl, Number, Part, answer_fields
from model.views.figure import new_figure, render, show_strip
from model.views.net import Net, encode_picture
from model.views.view import TargetQuery, View

MAX_NEIGHBOURS = 20
_CELL_PX = 110


def measure_distances(
    pose: Floats, poses: NDArray[np.floating], whitening: NDArray[np.floating]
) -> NDArray[np.float64]:
    """Measure the distances (N,) of poses to one pose, in standard deviations of their class.

    Args:
        pose: (D,).
        poses: (N, D), of the same class.
        whitening: (D, D): W, with W W^T the inverse of their covariance.
    """
    away = (poses.astype(np.float64) - pose) @ whitening.astype(np.float64)
    return np.asarray(np.linalg.norm(away, axis=1))


class NeighboursQuery(TargetQuery):
    """The parameters of `neighbours`."""

    count: int = Field(
        6, ge=1, le=MAX_NEIGHBOURS, description="Number of training images, the nearest first."
    )

    max_rows = MAX_NEIGHBOURS + PROTOTYPES

    def rows(self, manifest: Manifest) -> int:  # noqa: ARG002
        """Each image may have to be decoded from its pose."""
        return self.count + PROTOTYPES


class Neighbour(Part):
    """A training image of the class."""

    distance: Number = Field(
        description="Distance of the two poses, in standard deviations of the class's poses."
    )
    image: DataUrl


class Prototype(Neighbour):
    """A training image that stands for others of the class."""

    share: Number = Field(
        description="Share of the class's images whose nearest prototype this is."
    )


class NeighboursAnswer(CapsuleAnswer):
    """Training images of a class, ordered by the distance of their poses."""

    images: str = Field(description="Which images were searched.")
    licence: str = Field(description="Licence of the images; empty if none is stated.")
    source: str
    drawn: bool = Field(
        description="Whether images are drawn by the decoder from their poses, because the bundle "
        "does not contain the images."
    )
    typical_distance: Number = Field(
        description="Median distance between a training image of the class and the nearest other "
        "one."
    )
    neighbours: list[Neighbour] = Field(
        description="Training images of the class, the nearest first."
    )
    prototypes: list[Prototype] = Field(
        description="Typical training images of the class, the one with the largest share first."
    )


async def neighbours(net: Net, query: NeighboursQuery, picture: Prepared) -> NeighboursAnswer:
    """Find the training images of a class with the nearest poses.

    Only images of the chosen class are searched. For example, if the image shows an 8 and you
    choose the class 3, every result is a 3. The images do not explain the answer, because the
    network compares no images. Prototypes represent the class: they are chosen so that every image
    has a near prototype.
    """
    described = net.manifest.neighbours
    assert described
    assert described.gallery
    gallery = described.gallery
    capsule = (await encode_picture(net, picture)).capsule(query.target)
    of_class = gallery.of_class(capsule.label)
    if not len(of_class):
        name = net.manifest.class_names[capsule.label]
        raise NotOffered(f"{net.manifest.name!r} has no training images of {name!r}")
    poses, whitening = gallery.poses[of_class], gallery.whitening[capsule.label]
    distances = await net.aside(measure_distances, capsule.pose, poses, whitening)
    nearest = np.argsort(distances, kind="stable")[: query.count]
    prototypes = gallery.prototypes[capsule.label]
    prototypes = prototypes[prototypes >= 0]
    rows = np.concatenate((nearest, prototypes))
    if gallery.sheet.size:
        shape = net.manifest.image_shape
        images = scale(await net.aside(gallery.thumbnails, of_class[rows], shape))
    else:
        images = await net.decode(poses[rows].astype(np.float32), capsule.label)
    shown = list(zip(distances[rows], images, strict=True))
    shares = gallery.shares[capsule.label]
    return NeighboursAnswer(
        **answer_fields(net.manifest, capsule),
        images=described.images,
        licence=described.licence,
        source=described.source,
        drawn=not gallery.sheet.size,
        typical_distance=gallery.typical[capsule.label],
        neighbours=[
            Neighbour(distance=distance, image=image) for distance, image in shown[: len(nearest)]
        ],
        prototypes=[
            Prototype(share=share, distance=distance, image=image)
            for share, (distance, image) in zip(shares, shown[len(nearest) :], strict=False)
        ],
    )


def draw_neighbours(answer: NeighboursAnswer) -> bytes:
    """The image and its neighbours, and below them the prototypes."""
    titles = ["the image", *(f"{neighbour.distance:.1f}" for neighbour in answer.neighbours)]
    images = [answer.image, *(neighbour.image for neighbour in answer.neighbours)]
    shares = [
        f"{100 * prototype.share:.0f} % ({prototype.distance:.1f})"
        for prototype in answer.prototypes
    ]
    what = f"training images of {answer.class_name}" + ", drawn from their poses" * answer.drawn
    near_title = (
        f"{what}, by the distance of their pose; "
        f"median of nearest neighbours: {answer.typical_distance:.1f}"
    )
    columns = max(len(images), len(shares))
    figure = new_figure(max(640, columns * _CELL_PX), 2 * (_CELL_PX + 50))
    near, typical = figure.subfigures(2, 1, squeeze=False)[:, 0]
    show_strip(near, images, titles, columns=columns, heading=near_title)
    title = "prototypes, with the share of images that each represents (and its distance)"
    prototypes = [prototype.image for prototype in answer.prototypes]
    show_strip(typical, prototypes, shares, columns=columns, heading=title)
    return render(figure)


VIEW = View(
    neighbours,
    draw=draw_neighbours,
    figure=True,
    needs="neighbours",
)
