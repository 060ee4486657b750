"""Measure which ink matters: a patch of background slides over the image, which is encoded again.

Occlusion sensitivity (Zeiler and Fergus 2014, "Visualizing and Understanding Convolutional
Networks", section 4.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from model.bundle import Manifest
from model.errors import InvalidParameter
from model.preprocess import Floats, Prepared
from model.views.answers import CapsuleAnswer, Matrix, Number, answer_fields
from model.views.figure import OPPOSES, new_figure, render, show_image, show_support
from model.views.net import Encoded, Net, encode_all
from model.views.view import TargetQuery, View

MAX_PATCHES = 256
"""The most patches for one image, each of which is encoded."""
MAX_SIDE = 64
"""The longest side of a patch, in pixels."""
FULL_CHANGE = 0.25
"""The change at which a colour is full, in every drawing."""
_NO_CHANGE = 0.005
"""Smaller changes are rounded to 0.00: nothing changes."""
_PANEL_PX = 320


@dataclass(frozen=True)
class Occlusion:
    """The positions of the patch. Every pixel is covered at least once."""

    patch: int
    """The side of the patch, in pixels."""
    stride: int
    """The pixels from one position to the next; fewer before the last ones."""
    tops: tuple[int, ...]
    lefts: tuple[int, ...]

    @property
    def areas(self) -> list[tuple[slice, slice]]:
        """The rows and columns that each of M patches covers, row by row."""
        side = self.patch
        return [
            np.s_[top : top + side, left : left + side] for top in self.tops for left in self.lefts
        ]

    def images(self, image: Floats, background: Floats) -> Floats:
        """Hide each part of an image (C, H, W) by its background (C,): (M, C, H, W)."""
        images = np.repeat(image[None], len(self.areas), axis=0)
        for hidden, (rows, columns) in zip(images, self.areas, strict=True):
            hidden[:, rows, columns] = background[:, None, None]
        return images

    def on_pixels(self, changes: Floats) -> Floats:
        """The mean change (H, W) at each pixel, over the places (M,) whose patch covers it."""
        size = self.tops[-1] + self.patch, self.lefts[-1] + self.patch
        total, count = np.zeros(size), np.zeros(size)
        for area, change in zip(self.areas, changes, strict=True):
            total[area] += change
            count[area] += 1
        return np.asarray(total / count, np.float32)


def plan_occlusion(height: int, width: int, patch: int | None = None) -> Occlusion:
    """Place a square patch on an image, both edges included.

    By default the patch has 1/25 of the image's area. Places are a third of the patch apart, or
    further where there would be more than MAX_PATCHES.

    Raises:
        InvalidParameter: the patch is larger than the image, or too small to cover it in as many
            places.
    """
    patch = patch or min(height, width, max(1, round(math.sqrt(height * width) / 5)))
    size = f"an image of {height}x{width}"
    if patch > min(height, width):
        detail = f"a patch of {patch} pixels is larger than {size}"
        raise InvalidParameter(detail, parameter="patch")
    for stride in range(math.ceil(patch / 3), patch + 1):
        tops, lefts = ((*range(0, size - patch, stride), size - patch) for size in (height, width))
        if len(tops) * len(lefts) <= MAX_PATCHES:
            return Occlusion(patch, stride, tops, lefts)
    detail = f"{MAX_PATCHES} patches of {patch} pixels do not cover {size}"
    raise InvalidParameter(detail, parameter="patch")


class OcclusionQuery(TargetQuery):
    """The parameters of `occlusion`."""

    patch: int | None = Field(
        None,
        ge=1,
        le=MAX_SIDE,
        description="The side of the patch, in pixels of the network's image. The default has 1/25 "
        "of the image's area.",
        json_schema_extra={"x-unit": "px"},
    )

    max_rows = MAX_PATCHES

    def rows(self, manifest: Manifest) -> int:
        """Each place is encoded."""
        return len(plan_occlusion(manifest.height, manifest.width, self.patch).areas)


class OcclusionAnswer(CapsuleAnswer):
    """The change of presence while a patch of background hides each part of the image."""

    patch: int = Field(description="Side of the patch, pixels.")
    stride: int = Field(description="Pixels between neighbouring places.")
    value: Number = Field(description="Presence without the patch.")
    map: Matrix = Field(
        description="(H, W): the mean change of the value at each pixel, over all places of the "
        "patch that cover the pixel; negative where the value falls."
    )
    lowest: Number = Field(description="The value at the place where it falls most.")
    highest: Number = Field(description="The value at the place where it rises most.")
    labels: list[list[int]] = Field(
        description="(rows, columns) of places: the most present class with the patch there."
    )


async def occlusion(net: Net, query: OcclusionQuery, picture: Prepared) -> OcclusionAnswer:
    """Hide one patch of the image at a time and encode each result.

    For strokes the patch is black, and for photographs it has their mean colour. The map shows
    where hiding a part of the image changes the presence. It does not show what the class consists
    of. A patch adds edges that no training image had. If two strokes give the same evidence, hiding
    one of them may change nothing.
    """
    manifest, image = net.manifest, picture.image
    plan = plan_occlusion(manifest.height, manifest.width, query.patch)
    strokes = manifest.preprocess != "crop"
    background = np.zeros(len(image), np.float32) if strokes else image.mean(axis=(1, 2))
    images = await net.aside(plan.images, image, background)
    altered = (images != image).any(axis=(1, 2, 3))
    encoding = await encode_all(net, [image, *images[altered]])
    capsule = Encoded(picture, encoding.presence[0], encoding.poses[0]).capsule(query.target)
    # A patch that hides nothing changes nothing: its place takes the row of the image itself.
    presence = encoding.presence[np.where(altered, altered.cumsum(), 0)]
    values = presence[:, capsule.label]
    labels = presence.argmax(axis=1).reshape(len(plan.tops), len(plan.lefts))
    return OcclusionAnswer(
        **answer_fields(manifest, capsule),
        patch=plan.patch,
        stride=plan.stride,
        value=capsule.presence,
        map=plan.on_pixels(values - np.float32(capsule.presence)),
        lowest=values.min(),
        highest=values.max(),
        labels=labels.tolist(),
    )


def draw_occlusion(answer: OcclusionAnswer) -> bytes:
    """The image with the patch in its corner, and the map over it.

    It is orange where the value falls and blue where it rises, in the same scale for every image.
    """
    change = answer.map
    ends = f"orange: falls, to {change.min():+.2f}; blue: rises, to {change.max():+.2f}"
    if np.abs(change).max() < _NO_CHANGE:
        ends = "nothing changes by 0.005 or more"
    falls = -np.sign(change) * np.sqrt(np.abs(change) / FULL_CHANGE)
    figure = new_figure(2 * _PANEL_PX, _PANEL_PX + 50)
    from matplotlib.patches import Rectangle  # noqa: PLC0415  matplotlib is slow

    left, right = figure.subplots(1, 2)
    show_image(left, answer.image, f"{answer.presence} of {answer.class_name}: {answer.value:.2f}")
    corner, side = (-0.5, -0.5), answer.patch
    left.add_patch(Rectangle(corner, side, side, fill=False, edgecolor=OPPOSES))
    title = f"mean change (strongest colour: ≥ {FULL_CHANGE:g})\n{ends}"
    show_support(right, answer, falls, title, most=1)
    return render(figure)


VIEW = View(
    occlusion,
    draw=draw_occlusion,
    figure=True,
)
