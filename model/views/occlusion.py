"""Measure which ink matters: a patch of background slides over the image, which is encoded again.

Occlusion sensitivity (Zeiler and Fergus 2014, "Visualizing and Understanding Convolutional
Networks", section 4.2), for presence and for each number of a pose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from model.bundle import Manifest
from model.errors import InvalidParameter
from model.preprocess import Floats, Prepared
from model.views.answers import CapsuleAnswer, Inner, Matrix, Number, answer_fields
from model.views.figure import draw_figure, show_image
from model.views.net import Encoded, Net, encode_all
from model.views.query import Index, TargetQuery
from model.views.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_PATCHES = 256
"""The most patches for one image, each of which is encoded."""
MAX_SIDE = 64
"""The longest side of a patch, in pixels."""
_FALLS, _RISES = "#d65400", "#0969da"
_STROKE = 0.45
"""The brightness of the image under the map."""
_PANEL_PX = 320
FULL_CHANGE = 0.25
"""The change at which a colour is full, in every drawing."""
NO_CHANGE = 0.005
"""Smaller changes are rounded to 0.00: nothing changes."""


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
    def shape(self) -> tuple[int, int]:
        """The rows and columns of positions."""
        return len(self.tops), len(self.lefts)

    def images(self, image: Floats, background: Floats) -> Floats:
        """Return the image (C, H, W) with the patch at each position, row by row: (M, C, H, W).

        Args:
            background: (C,), what the patch shows.
        """
        rows, columns = self.shape
        images = np.broadcast_to(image, (rows, columns, *image.shape)).copy()
        for row, top in enumerate(self.tops):
            for column, left in enumerate(self.lefts):
                area = np.s_[row, column, :, top : top + self.patch, left : left + self.patch]
                images[area] = background[:, None, None]
        return images.reshape(-1, *image.shape)

    def on_pixels(self, changes: Floats) -> Floats:
        """The mean change (H, W) at each pixel, over the places (M,) whose patch covers it."""
        size = self.tops[-1] + self.patch, self.lefts[-1] + self.patch
        total, count = np.zeros(size), np.zeros(size)
        by_position = changes.reshape(self.shape)
        for row, top in enumerate(self.tops):
            for column, left in enumerate(self.lefts):
                area = np.s_[top : top + self.patch, left : left + self.patch]
                total[area] += by_position[row, column]
                count[area] += 1
        return np.asarray(total / count, np.float32)


def plan_occlusion(
    height: int, width: int, *, patch: int | None = None, stride: int | None = None
) -> Occlusion:
    """Place a square patch on an image, `stride` pixels apart, both edges included.

    By default the patch has 1/25 of the image's area, and the stride is a third of the patch.

    Raises:
        ValueError: the patch is larger than the image, the stride larger than the patch, or there
            are more than MAX_PATCHES places.
    """
    patch = patch or min(height, width, max(1, round(math.sqrt(height * width) / 5)))
    stride = stride or math.ceil(patch / 3)
    if patch > min(height, width):
        raise ValueError(f"a patch of {patch} pixels is larger than an image of {height}x{width}")
    if stride > patch:
        raise ValueError(f"with a stride of {stride} a patch of {patch} pixels leaves gaps")
    tops, lefts = (_positions(size - patch, stride) for size in (height, width))
    if len(tops) * len(lefts) > MAX_PATCHES:
        raise ValueError(
            f"a patch of {patch} pixels has {len(tops) * len(lefts):,} places on an image of "
            f"{height}x{width}; there may be {MAX_PATCHES}: take a larger stride or patch"
        )
    return Occlusion(patch, stride, tops, lefts)


def find_background(image: Floats, *, strokes: bool) -> Floats:
    """Find the colour behind an image (C, H, W): black if strokes are light, else its mean.

    Returns:
        (C,).
    """
    return np.zeros(len(image), np.float32) if strokes else np.asarray(image.mean(axis=(1, 2)))


def is_altered(image: Floats, occluded: Floats) -> NDArray[np.bool_]:
    """Return whether each patch hides anything, (M,), in images (M, C, H, W)."""
    return np.asarray((occluded != image).any(axis=(1, 2, 3)))


def _positions(room: int, stride: int) -> tuple[int, ...]:
    """0, stride, ... and `room`."""
    return (*range(0, room, stride), room)


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
    stride: int | None = Field(
        None,
        ge=1,
        le=MAX_SIDE,
        description="The pixels from one place to the next, at most `patch`. The default is a "
        f"third of `patch`. There are at most {MAX_PATCHES} places.",
        json_schema_extra={"x-unit": "px"},
    )
    dim: Index | None = Field(
        None,
        description="The pose dimension to watch, counted from 0. The default is the presence.",
    )

    max_rows = MAX_PATCHES

    def plan(self, manifest: Manifest) -> Occlusion:
        """Return the positions of the patch.

        Raises:
            InvalidParameter: there is no such dimension, or the patch or its places do not fit.
        """
        if self.dim is not None and self.dim >= manifest.class_dim:
            dims = f"0 to {manifest.class_dim - 1}" if manifest.class_dim else "none of this model"
            raise InvalidParameter(f"dim is {dims}", parameter="dim")
        try:
            return plan_occlusion(
                manifest.height, manifest.width, patch=self.patch, stride=self.stride
            )
        except ValueError as error:
            parameter = "stride" if self.patch is None else "patch"
            raise InvalidParameter(str(error), parameter=parameter) from error

    def check(self, manifest: Manifest) -> None:
        """Refuse a dimension that the poses do not have, and places that do not fit."""
        super().check(manifest)
        self.plan(manifest)

    def rows(self, manifest: Manifest) -> int:
        """Each place is encoded."""
        rows, columns = self.plan(manifest).shape
        return rows * columns


class OcclusionAnswer(CapsuleAnswer):
    """The change of presence and pose while a patch of background hides each part of the image."""

    patch: int = Field(description="Side of the patch, pixels.")
    stride: int = Field(description="Pixels between neighbouring places.")
    dim: int | None = Field(description="The pose dimension that was watched; null: presence.")
    value: Number = Field(description="Presence, or value of `dim`, without the patch.")
    map: Matrix = Field(
        description="(H, W): the mean change of the value at each pixel, over all places of the "
        "patch that cover the pixel; negative where the value falls."
    )
    lowest: Number = Field(description="The value at the place where it falls most.")
    highest: Number = Field(description="The value at the place where it rises most.")
    labels: list[list[int]] = Field(
        description="(rows, columns) of places: the most present class with the patch there."
    )
    image: Inner[Floats]
    """The image (C, H, W)."""
    watched: Inner[str]
    """What was watched, in words."""


async def occlusion(net: Net, query: OcclusionQuery, picture: Prepared) -> OcclusionAnswer:
    """Hide one patch of the image at a time and encode each result.

    For strokes the patch is black, and for photographs it has their mean colour. The map shows
    where hiding a part of the image changes the presence, or the dimension `dim` of the pose. It
    does not show what the class consists of. A patch adds edges that no training image had. If two
    strokes give the same evidence, hiding one of them may change nothing.
    """
    manifest, plan, image = net.manifest, query.plan(net.manifest), picture.image
    images = await net.aside(_hide, manifest, plan, image)
    altered = is_altered(image, images)
    encoding = await encode_all(net, [image, *images[altered]])
    capsule = Encoded(picture, encoding.presence[0], encoding.poses[0]).capsule(query.target)
    # A patch that hides nothing changes nothing: its place takes the row of the image itself.
    rows = np.where(altered, altered.cumsum(), 0)
    watched = encoding.presence[rows] if query.dim is None else encoding.poses[rows, :, query.dim]
    values, value = watched[:, capsule.label], capsule.presence
    if query.dim is not None:
        value = float(capsule.pose[query.dim])
    return OcclusionAnswer(
        **answer_fields(manifest, capsule),
        patch=plan.patch,
        stride=plan.stride,
        dim=query.dim,
        value=value,
        map=plan.on_pixels(values - np.float32(value)),
        lowest=values.min(),
        highest=values.max(),
        labels=encoding.presence[rows].argmax(axis=1).reshape(plan.shape).tolist(),
        image=image,
        watched=manifest.presence if query.dim is None else f"dimension {query.dim}",
    )


def _hide(manifest: Manifest, plan: Occlusion, image: Floats) -> Floats:
    """Hide each part of the image (C, H, W) in turn, (M, C, H, W)."""
    return plan.images(image, find_background(image, strokes=manifest.preprocess != "crop"))


def draw(answer: OcclusionAnswer, query: OcclusionQuery) -> bytes:  # noqa: ARG001
    """The image with the patch in its corner, and the map over it.

    It is orange where the value falls and blue where it rises, in the same scale for every image.
    """
    image, change = answer.image, answer.map
    dark = image if answer.fit.polarity else 1 - image

    def fill(figure: Figure) -> None:
        from matplotlib.colors import ListedColormap  # noqa: PLC0415  matplotlib is slow
        from matplotlib.patches import Rectangle  # noqa: PLC0415

        figure.set_layout_engine("constrained")
        left, right = figure.subplots(1, 2)
        show_image(left, image, f"{answer.watched} of {answer.class_name}: {answer.value:.2f}")
        corner = (-0.5, -0.5)
        patch = Rectangle(corner, answer.patch, answer.patch, fill=False, edgecolor=_RISES)
        left.add_patch(patch)
        colours = ListedColormap([_FALLS, _RISES])
        shares = np.sqrt((np.abs(change) / FULL_CHANGE).clip(0, 1))
        ends = f"orange: falls, to {change.min():+.2f}; blue: rises, to {change.max():+.2f}"
        if np.abs(change).max() < NO_CHANGE:
            ends = "nothing changes by 0.005 or more"
        scale = f"mean change; the colour is full at {FULL_CHANGE:g}"
        show_image(right, 1 - _STROKE * dark, f"{scale}\n{ends}")
        right.imshow(change > 0, cmap=colours, vmin=0, vmax=1, alpha=0.9 * shares)

    return draw_figure(fill, width_px=2 * _PANEL_PX, height_px=_PANEL_PX + 50)


VIEW = View(
    name="occlusion",
    query=OcclusionQuery,
    answer=OcclusionAnswer,
    compute=occlusion,
    large=True,
    draw=draw,
    slow=True,
)
