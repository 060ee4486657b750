"""Sweep a pose: move it step by step along its directions, or in each dimension, and decode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from PIL import Image, ImageDraw
from pydantic import Field

from model.bundle import Manifest
from model.bundle.directions import Direction
from model.canvas import ACCENT, INK, MARGIN, PAPER, enlarge, fit_scale, font, png
from model.errors import InvalidParameter
from model.preprocess import Floats, Prepared
from model.views.answers import CapsuleAnswer, DataUrl, Number, Part, Pose, answer_fields
from model.views.decode import MAX_POSES
from model.views.net import Net, encode_picture
from model.views.view import SCALE_TEXT, Delta, Index, TargetQuery, View

By = Literal["direction", "dimension"]
SHARES = (-1.0, -0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The steps along a direction: shares of the way to either end of its slider."""
_START, _STOP, _STEP = -0.25, 0.25, 0.05
"""The deltas of a dimension, as in the paper (figure 4)."""
_DECIMALS = 9
"""Steps such as 0.05 add up to round numbers."""
_GAP = 2
"""The pixels between two images."""
_FONT = 12


class SweptDirection(Part):
    """A row of a sweep by directions."""

    name: str
    unit: str
    low: Number = Field(description="The value that is asked for in the first column.")
    high: Number = Field(description="The value that is asked for in the last column.")


class Sweep(NamedTuple):
    """A grid of moved poses."""

    names: tuple[str, ...]
    """Of the R rows."""
    steps: tuple[float, ...]
    """Of the S columns."""
    poses: Floats
    """(R, S, D)."""
    directions: tuple[SweptDirection, ...] = ()
    """The rows, if they are directions."""


def sweep_dims(pose: Floats, dims: Sequence[int], steps: Sequence[float]) -> Sweep:
    """The sweep of a pose (D,) in some of its dimensions."""
    rows = np.eye(len(pose), dtype=np.float32)[list(dims)]
    moves = np.asarray(steps, np.float32)[:, None] * rows[:, None]
    return Sweep(tuple(map(str, dims)), tuple(steps), pose + moves)


def sweep_directions(pose: Floats, directions: Sequence[Direction]) -> Sweep:
    """The sweep of a pose (D,) along the first directions, from end to end of each slider."""
    names, moves, swept = [], [], []
    for direction in directions[: MAX_POSES // len(SHARES)]:
        name, unit = direction.name, direction.unit
        value, (low, high) = direction.read(pose), direction.ends(pose)
        names.append(f"{name} {low:.2g} to {high:.2g} {unit}".rstrip())
        changes = np.interp(SHARES, (-1, 0, 1), (low - value, 0, high - value))
        moves.append(np.outer(changes, direction.vector))
        swept.append(SweptDirection(name=name, unit=unit, low=low, high=high))
    poses = pose + np.array(moves, np.float32)
    return Sweep(tuple(names), SHARES, poses, tuple(swept))


def plan_steps(start: float, stop: float, step: float, *, rows: int) -> tuple[float, ...]:
    """The steps from `start` to `stop`, both included where `step` reaches it.

    Args:
        start: first delta.
        stop: last delta, at least `start`.
        step: above zero.
        rows: of the sweep.

    Raises:
        InvalidParameter: the range is empty, or there are more than MAX_POSES images.
    """
    if stop < start:
        detail = f"the sweep ends at {stop:g}, before its start at {start:g}"
        raise InvalidParameter(detail, parameter="step")
    count = int((stop - start) / step + 1e-6) + 1
    if count * rows > MAX_POSES:
        raise InvalidParameter(
            f"{rows} dimensions by {count:,} steps are {count * rows:,} pictures; "
            f"a sweep has at most {MAX_POSES}",
            parameter="step",
        )
    return tuple(round(start + number * step, _DECIMALS) + 0.0 for number in range(count))


class SweepQuery(TargetQuery):
    """The parameters of `sweep`."""

    lists: ClassVar = frozenset({"dims"})

    by: By | None = Field(
        None,
        description="The rows. The default is `direction` where the class has any, unless `dims`, "
        "`start`, `stop` or `step` is given.",
    )
    dims: list[Index] | None = Field(
        None,
        min_length=1,
        max_length=MAX_POSES,
        description="Dimensions, counted from 0, each once; default: all.",
        json_schema_extra={"uniqueItems": True},
    )
    start: Delta | None = Field(None, description="First delta of a dimension; by default -0.25.")
    stop: Delta | None = Field(None, description="Last delta of a dimension; by default 0.25.")
    step: float | None = Field(
        None,
        ge=1e-6,
        le=2,
        allow_inf_nan=False,
        description="Distance between two deltas; by default 0.05.",
    )
    scale: int = Field(2, ge=1, le=8, description=SCALE_TEXT)

    max_rows = MAX_POSES

    def plan(self, manifest: Manifest, label: int, pose: Floats) -> Sweep:
        """Return how a pose (D,) of a class is moved.

        Raises:
            InvalidParameter: a dimension is out of range or repeated, there are too many poses, or
                the class has no directions.
        """
        # not `model_fields_set`: FastAPI sets every field of a query
        given = (self.dims, self.start, self.stop, self.step)
        of_dims = any(value is not None for value in given)
        if self.by == "direction" and of_dims:
            raise InvalidParameter("dims, start, stop and step are of dimensions", parameter="by")
        directions = manifest.offered_directions(label)
        if self.by == "direction" and not directions:
            raise InvalidParameter(
                f"{manifest.class_names[label]} of {manifest.name!r} has no directions",
                parameter="by",
            )
        if directions and self.by != "dimension" and not of_dims:
            return sweep_directions(pose, directions)
        known = range(manifest.class_dim)
        dims = list(known) if self.dims is None else self.dims
        if not set(dims) <= set(known) or len(set(dims)) < len(dims):
            raise InvalidParameter(f"dims are 0 to {known[-1]}, each once", parameter="dims")
        steps = plan_steps(
            _START if self.start is None else self.start,
            _STOP if self.stop is None else self.stop,
            _STEP if self.step is None else self.step,
            rows=len(dims),
        )
        return sweep_dims(pose, dims, steps)

    def rows(self, manifest: Manifest) -> int:
        """Each pose is decoded; of all classes, the one with most poses counts."""
        labels = range(manifest.num_classes) if self.target is None else [self.target]
        with_directions = {known.label for known in manifest.directions if known.offered}
        if self.target is None and self.by == "direction" and with_directions:
            labels = sorted(with_directions)
        origin = np.zeros(manifest.class_dim, np.float32)
        plans = [self.plan(manifest, label, origin) for label in labels]
        return max(len(plan.names) * len(plan.steps) for plan in plans)


class SweepAnswer(CapsuleAnswer):
    """The decoded images: one row for each direction or dimension, one column for each delta."""

    pose: Pose
    by: By
    dims: list[int] = Field(description="The rows by dimension; else empty.")
    directions: list[SweptDirection] = Field(description="The rows by direction; else empty.")
    deltas: list[float] = Field(
        description="The columns. Along directions: shares of the way to `low` and `high`."
    )
    rows: list[str] = Field(description="The rows in words.")
    images: list[list[DataUrl]] = Field(description="Rows as in `rows`, columns as in `deltas`.")


async def sweep(net: Net, query: SweepQuery, picture: Prepared) -> SweepAnswer:
    """Move a pose step by step along directions or dimensions."""
    capsule = (await encode_picture(net, picture)).capsule(query.target)
    plan = query.plan(net.manifest, capsule.label, capsule.pose)
    rows, columns, class_dim = plan.poses.shape
    images = await net.decode(plan.poses.reshape(-1, class_dim), capsule.label)
    return SweepAnswer(
        **answer_fields(net.manifest, capsule),
        pose=capsule.pose,
        by="direction" if plan.directions else "dimension",
        dims=[] if plan.directions else list(map(int, plan.names)),
        directions=list(plan.directions),
        deltas=list(plan.steps),
        rows=list(plan.names),
        images=list(map(list, images.reshape(rows, columns, *images.shape[1:]))),
    )


def draw_sweep(answer: SweepAnswer, scale: int) -> bytes:
    """The paper's figure 4: see `draw_grid`."""
    shape = (len(answer.rows), len(answer.deltas), *answer.images[0][0].shape)
    scale = fit_scale(scale, shape)
    by_dimension = not answer.directions
    what = "pose dimensions, moved" if by_dimension else "directions, from end to end of the class"
    grid = draw_grid(
        answer.images,
        answer.rows,
        answer.deltas,
        title=f"{answer.class_name}: {what}",
        scale=scale,
        heads=by_dimension,
    )
    return png(grid)


def draw_grid(
    images: Floats | Sequence[Sequence[Floats]],
    rows: Sequence[str],
    deltas: Sequence[float],
    *,
    title: str,
    scale: int,
    heads: bool,
) -> Image.Image:
    """A grid with named rows. The column of zero is framed.

    Args:
        images: (R, len(deltas), C, H, W) in [0, 1].
        rows: the names of the R rows.
        deltas: of the columns.
        title: of the grid.
        scale: each pixel becomes scale x scale.
        heads: whether the deltas stand at the heads of the columns.
    """
    height, width_px = images[0][0].shape[-2:]
    pitch, down = width_px * scale + _GAP, height * scale + _GAP
    left = MARGIN + math.ceil(max(font(_FONT).getlength(row) for row in rows)) + 8
    top = MARGIN + (44 if heads else 28)
    width = max(left + pitch * len(deltas), MARGIN + math.ceil(font(15).getlength(title)))
    picture = Image.new("RGB", (width + MARGIN, top + down * len(rows) + MARGIN), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((MARGIN, MARGIN), title, INK, font(15))
    if heads:
        _label_columns(draw, deltas, left=left, bottom=top - 5, pitch=pitch)
    for row, name in enumerate(rows):
        y = top + row * down
        draw.text((left - 8, y + down // 2), name, INK, font(_FONT), anchor="rm")
        for column, image in enumerate(images[row]):
            picture.paste(enlarge(image, scale), (left + column * pitch, y))
    if 0 in deltas:
        x = left + list(deltas).index(0) * pitch
        frame = (x - _GAP, top - _GAP, x + pitch - 1, top + len(rows) * down - 1)
        draw.rectangle(frame, outline=ACCENT, width=_GAP)
    return picture


def _label_columns(
    draw: ImageDraw.ImageDraw, deltas: Sequence[float], *, left: int, bottom: int, pitch: int
) -> None:
    """Write as many deltas as have room, counted from the column of zero where there is one."""
    labels = [f"{delta:+.3g}" if delta else "0" for delta in deltas]
    widest = max(font(_FONT).getlength(label) for label in labels) + 6
    every = math.ceil(widest / pitch)
    origin = list(deltas).index(0) if 0 in deltas else 0
    for column, label in enumerate(labels):
        if (column - origin) % every == 0:
            middle = left + column * pitch + pitch // 2
            draw.text((middle, bottom), label, INK, font(_FONT), anchor="ms")


VIEW = View(
    sweep,
    draw=draw_sweep,
    figure=True,
    needs="decode",
)
