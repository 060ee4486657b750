"""Sweep a pose: move one dimension step by step and decode (paper, figure 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from PIL import Image, ImageDraw
from pydantic import Field

from model.bundle import Manifest
from model.bundle.dimensions import PoseDimension
from model.canvas import ACCENT, INK, MARGIN, PAPER, enlarge, fit_scale, font, png, signed
from model.errors import InvalidParameter
from model.preprocess import Floats, Prepared
from model.views.answers import CapsuleAnswer, DataUrl, Meaning, Pose, answer_fields
from model.views.decode import MAX_POSES
from model.views.net import Net, encode_picture
from model.views.query import SCALE_TEXT, Delta, Index, TargetQuery
from model.views.view import View

Named: TypeAlias = Meaning | PoseDimension
MAX_IMAGES = MAX_POSES
"""A sweep has at most this many images, which are decoded as one batch."""
_DECIMALS = 9
"""Steps such as 0.05 add up to round numbers."""
_GAP = 2
"""The pixels between two images."""
_FONT = 12


@dataclass(frozen=True)
class Sweep:
    """The dimensions that are changed, and by how much."""

    dims: tuple[int, ...]
    """The rows of the sweep's grid."""
    deltas: tuple[float, ...]
    """The changes of a pose's number, one for each column."""

    def poses(self, pose: Floats) -> Floats:
        """Return the poses of all images, row by row: pose (D,) to (len(dims) * len(deltas), D).

        Row m of the grid and column n hold pose + deltas[n] * e_dims[m].
        """
        grid = np.tile(pose, (len(self.dims), len(self.deltas), 1))
        for row, dim in enumerate(self.dims):
            grid[row, :, dim] += np.asarray(self.deltas, np.float32)
        return grid.reshape(-1, len(pose))

    def on_grid(self, images: Floats) -> Floats:
        """Arrange images (M, C, H, W) of these poses as (len(dims), len(deltas), C, H, W)."""
        return images.reshape(len(self.dims), len(self.deltas), *images.shape[1:])


def plan_sweep(dims: Sequence[int], *, start: float, stop: float, step: float) -> Sweep:
    """The sweep of some dimensions from `start` to `stop`, both included where `step` reaches it.

    Args:
        dims: pose dimensions.
        start: first delta.
        stop: last delta, at least `start`.
        step: above zero.

    Raises:
        ValueError: the range is empty, or there are more than MAX_IMAGES images.
    """
    if stop < start:
        raise ValueError(f"the sweep ends at {stop:g}, before its start at {start:g}")
    count = int((stop - start) / step + 1e-6) + 1
    if count * len(dims) > MAX_IMAGES:
        raise ValueError(
            f"{len(dims)} dimensions by {count:,} steps are {count * len(dims):,} pictures; "
            f"a sweep has at most {MAX_IMAGES}"
        )
    deltas = tuple(round(start + number * step, _DECIMALS) + 0.0 for number in range(count))
    return Sweep(tuple(dims), deltas)


class SweepQuery(TargetQuery):
    """The parameters of `sweep`."""

    lists: ClassVar = frozenset({"dims"})

    dims: list[Index] | None = Field(
        None,
        min_length=1,
        max_length=MAX_IMAGES,
        description="Dimensions, counted from 0, each once; default: all.",
        json_schema_extra={"uniqueItems": True},
    )
    start: Delta = Field(-0.25, description="First delta.")
    stop: Delta = Field(0.25, description="Last delta.")
    step: float = Field(
        0.05, ge=1e-6, le=2, allow_inf_nan=False, description="Distance between two deltas."
    )
    scale: int = Field(2, ge=1, le=8, description=SCALE_TEXT)

    max_rows = MAX_IMAGES

    def plan(self, manifest: Manifest) -> Sweep:
        """Return the poses that are drawn.

        Raises:
            InvalidParameter: a dimension is out of range or repeated, or there are too many poses.
        """
        known = range(manifest.class_dim)
        dims = list(known) if self.dims is None else self.dims
        if not set(dims) <= set(known) or len(set(dims)) < len(dims):
            raise InvalidParameter(f"dims are 0 to {known[-1]}, each once", parameter="dims")
        try:
            return plan_sweep(dims, start=self.start, stop=self.stop, step=self.step)
        except ValueError as error:
            raise InvalidParameter(str(error), parameter="step") from error

    def check(self, manifest: Manifest) -> None:
        """Refuse dimensions that the poses do not have, and too many poses."""
        self.plan(manifest)
        super().check(manifest)

    def rows(self, manifest: Manifest) -> int:
        """Each pose is decoded."""
        plan = self.plan(manifest)
        return len(plan.dims) * len(plan.deltas)


class SweepAnswer(CapsuleAnswer):
    """The decoded images: one row for each dimension, one column for each delta."""

    pose: Pose
    dims: list[int]
    deltas: list[float]
    meanings: list[Meaning | None] = Field(description="Measured effect of each of `dims`.")
    images: list[list[DataUrl]] = Field(description="Rows as in `dims`, columns as in `deltas`.")


async def sweep(net: Net, query: SweepQuery, picture: Prepared) -> SweepAnswer:
    """Move each pose dimension step by step (paper, figure 4)."""
    plan = query.plan(net.manifest)
    capsule = (await encode_picture(net, picture)).capsule(query.target)
    images = plan.on_grid(await net.decode(plan.poses(capsule.pose), capsule.label))
    return SweepAnswer(
        **answer_fields(net.manifest, capsule),
        pose=capsule.pose,
        dims=list(plan.dims),
        deltas=list(plan.deltas),
        meanings=[Meaning.of(net.manifest.meaning(capsule.label, dim)) for dim in plan.dims],
        images=list(map(list, images)),
    )


def draw(answer: SweepAnswer, query: SweepQuery) -> bytes:
    """The paper's figure 4: see `draw_grid`."""
    plan = Sweep(tuple(answer.dims), tuple(answer.deltas))
    shape = (len(plan.dims), len(plan.deltas), *answer.images[0][0].shape)
    scale, name = fit_scale(query.scale, shape), answer.class_name
    return png(draw_grid(answer.images, plan, answer.meanings, class_name=name, scale=scale))


def draw_grid(
    images: Floats | Sequence[Sequence[Floats]],
    sweep: Sweep,
    meanings: Sequence[Named | None],
    *,
    class_name: str,
    scale: int,
) -> Image.Image:
    """A grid whose rows are named by what their dimensions were found to do.

    Args:
        images: (len(sweep.dims), len(sweep.deltas), C, H, W) in [0, 1].
        sweep: its deltas stand at the head of the columns; the column of zero is framed.
        meanings: of its dimensions.
        class_name: of the class whose pose was moved.
        scale: each pixel becomes scale x scale.
    """
    rows = [_name_row(dim, meaning) for dim, meaning in zip(sweep.dims, meanings, strict=True)]
    title = f"{class_name}: pose dimensions, moved"
    deltas = sweep.deltas
    height, width_px = images[0][0].shape[-2:]
    pitch, down = width_px * scale + _GAP, height * scale + _GAP
    left = MARGIN + math.ceil(max(font(_FONT).getlength(row) for row in rows)) + 8
    top = MARGIN + 44
    width = max(left + pitch * len(deltas), MARGIN + math.ceil(font(15).getlength(title)))
    picture = Image.new("RGB", (width + MARGIN, top + down * len(rows) + MARGIN), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((MARGIN, MARGIN), title, INK, font(15))
    _label_columns(draw, deltas, left=left, bottom=top - 5, pitch=pitch)
    for row, name in enumerate(rows):
        y = top + row * down
        draw.text((left - 8, y + down // 2), name, INK, font(_FONT), anchor="rm")
        for column, image in enumerate(images[row]):
            picture.paste(enlarge(image, scale), (left + column * pitch, y))
    if 0 in deltas:
        x = left + deltas.index(0) * pitch
        frame = (x - _GAP, top - _GAP, x + pitch - 1, top + len(rows) * down - 1)
        draw.rectangle(frame, outline=ACCENT, width=_GAP)
    return picture


def _name_row(dim: int, meaning: Named | None) -> str:
    """The dimension's number, and what it was found to do."""
    return f"{dim} \N{MIDDLE DOT} {meaning.effect}" if meaning and meaning.effect else str(dim)


def _label_columns(
    draw: ImageDraw.ImageDraw, deltas: Sequence[float], *, left: int, bottom: int, pitch: int
) -> None:
    """Write as many deltas as have room, counted from the column of zero where there is one."""
    labels = [signed(delta) for delta in deltas]
    widest = max(font(_FONT).getlength(label) for label in labels) + 6
    every = math.ceil(widest / pitch)
    origin = list(deltas).index(0) if 0 in deltas else 0
    for column, label in enumerate(labels):
        if (column - origin) % every == 0:
            middle = left + column * pitch + pitch // 2
            draw.text((middle, bottom), label, INK, font(_FONT), anchor="ms")


VIEW = View(
    name="sweep",
    query=SweepQuery,
    answer=SweepAnswer,
    compute=sweep,
    large=True,
    draw=draw,
    needs="decode",
)
