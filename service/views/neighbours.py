"""`POST /neighbours`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from model.bundle.neighbours import PoseGallery
from model.canvas import enlarge
from model.interpret.neighbours import (
    Nearest,
    Prototypes,
    find_nearest,
    find_prototypes,
    measure_all,
    typical_distance,
)
from model.preprocess import Floats, scale
from service.drawing import draw_figure
from service.errors import NotOffered
from service.http.route import RESPONSE_COST_ROWS, Request, SlowJsonOrPng
from service.pipeline import Capsule
from service.views.schemas import CapsuleAnswer, DataUrl, Number, TargetQuery, answer_fields
from service.views.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST, PROTOTYPES = 20, 4
_CELL_PX = 110


class NeighboursQuery(TargetQuery):
    """The parameters of `/neighbours`."""

    count: int = Field(6, ge=1, le=MOST, description="Training images, the nearest first.")


class Neighbour(BaseModel):
    """A training image of the class."""

    distance: Number = Field(
        description="Of its pose from this image's, in standard deviations of the class's poses."
    )
    image: DataUrl


class Prototype(Neighbour):
    """A training image that stands for others of the class."""

    share: Number = Field(
        description="Of the class's images, those it is the nearest prototype of."
    )


class NeighboursAnswer(CapsuleAnswer):
    """Training images of a class, ordered by the distance of their poses."""

    images: str = Field(description="Among which images, in words.")
    licence: str = Field(description="Of the images; empty if none is stated.")
    source: str
    drawn: bool = Field(
        description="Whether images are drawn by the decoder from their poses, because the bundle "
        "has not the images themselves."
    )
    typical_distance: Number = Field(
        description="Median distance, in the class, of a training image from the nearest other one."
    )
    neighbours: list[Neighbour]
    prototypes: list[Prototype] = Field(description="Those that stand for most images first.")


class _Found(NamedTuple):
    """Rows of the gallery, and their distances from one pose."""

    nearest: Nearest
    prototypes: Prototypes
    distances: Floats
    """The distances of the prototypes from the pose."""
    typical: float


async def neighbours(request: Request, query: NeighboursQuery) -> SlowJsonOrPng[NeighboursAnswer]:
    """Find the training images whose pose is nearest.

    Among those of the class alone: the nearest 3 of an 8 is a 3. The answer does not follow from
    them: the network does not compare images. Prototypes are medoids of the class's poses.
    """
    manifest = request.pipeline.manifest(query.model, needs="neighbours")
    described = manifest.neighbours
    assert described
    assert described.gallery
    extra_rows = query.count + PROTOTYPES + RESPONSE_COST_ROWS
    capsule = await query.read_capsule(request, manifest, extra_rows=extra_rows)
    of_class = described.gallery.of_class(capsule.label)
    if not len(of_class):
        name = manifest.class_names[capsule.label]
        raise NotOffered(f"{manifest.name!r} has no training images of {name!r}")
    found = await asyncio.to_thread(_find, described.gallery, capsule, query.count)
    rows = of_class[np.concatenate((found.nearest.rows, found.prototypes.rows))]
    if described.gallery.sheet.size:
        shape = manifest.image_shape
        images = scale(await asyncio.to_thread(described.gallery.thumbnails, rows, shape))
    else:
        poses = described.gallery.poses[rows].astype(np.float32)
        images = await request.pipeline.decode(manifest, poses, capsule.label)
    count = len(found.nearest.rows)
    near = zip(found.nearest.distances, images[:count], strict=True)
    typical = zip(found.prototypes.shares, found.distances, images[count:], strict=True)
    fields = answer_fields(
        manifest,
        capsule,
        images=described.images,
        licence=described.licence,
        source=described.source,
        drawn=not described.gallery.sheet.size,
        typical_distance=found.typical,
        neighbours=[{"distance": distance, "image": image} for distance, image in near],
        prototypes=[
            {"share": share, "distance": distance, "image": image}
            for share, distance, image in typical
        ],
    )
    name = manifest.class_names[capsule.label]
    what = f"training images of {name}" + ", drawn from their poses" * fields["drawn"]
    draw = partial(draw_neighbours, capsule.prepared.image, images, found, what=what)
    return SlowJsonOrPng(partial(NeighboursAnswer, **fields), manifest, draw, large=True)


def _find(gallery: PoseGallery, capsule: Capsule, count: int) -> _Found:
    """Find the neighbours among the poses of the capsule's class."""
    poses = gallery.poses[gallery.of_class(capsule.label)].astype(np.float32)
    whitening = gallery.whitening[capsule.label].astype(np.float32)
    among = measure_all(poses, whitening)
    everything = find_nearest(capsule.pose, poses, whitening, len(poses))
    prototypes = find_prototypes(among, PROTOTYPES)
    distances = np.zeros(len(poses), np.float32)
    distances[everything.rows] = everything.distances
    nearest = Nearest(everything.rows[:count], everything.distances[:count])
    return _Found(nearest, prototypes, distances[prototypes.rows], typical_distance(among))


def draw_neighbours(image: Floats, images: Floats, found: _Found, *, what: str) -> bytes:
    """The image and its neighbours, and below them the prototypes, as a PNG.

    Args:
        image: (C, H, W).
        images: of the neighbours, then of the prototypes: (M, C, H, W).
        found: their distances and shares.
        what: the title, what the images show.
    """
    count = len(found.nearest.rows)
    titles = [f"{distance:.1f}" for distance in found.nearest.distances]
    shares = [
        f"{100 * share:.0f} % ({at:.1f})"
        for share, at in zip(found.prototypes.shares, found.distances, strict=True)
    ]
    lines = [
        list(zip(["the image", *titles], [image, *images[:count]], strict=True)),
        list(zip(shares, images[count:], strict=True)),
    ]
    heads = [
        f"{what}, by the distance of their pose; typical of the nearest: {found.typical:.1f}",
        "prototypes: share of the images that each stands for (its distance)",
    ]
    columns = max(map(len, lines))

    def fill(figure: Figure) -> None:
        halves = figure.subfigures(2, 1, squeeze=False)[:, 0]
        for half, head, line in zip(halves, heads, lines, strict=True):
            half.suptitle(head, x=0.01, ha="left", fontsize=9)
            panels = half.subplots(1, columns, squeeze=False)[0]
            for axes in panels:
                axes.set_axis_off()
            for axes, (title, pixels) in zip(panels, line, strict=False):
                axes.imshow(enlarge(pixels, 1).convert("RGB"), interpolation="nearest")
                axes.set_title(title, fontsize=8)

    return draw_figure(fill, width_px=max(640, columns * _CELL_PX), height_px=2 * (_CELL_PX + 50))


VIEW = View(
    path="/neighbours",
    handler=neighbours,
    needs="neighbours",
    max_cost=1 + MOST + PROTOTYPES + RESPONSE_COST_ROWS,
)
