"""`POST /morph`."""

from __future__ import annotations

import base64
import io
from functools import partial
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import BeforeValidator, Field

from model.bundle import Manifest
from model.canvas import enlarge
from model.interpret.equivariance import angles_deg
from model.interpret.morph import MAX_STEPS, interpolate
from model.preprocess import Floats
from service.drawing import draw_figure
from service.errors import InvalidParameter, unwrap
from service.http.route import RESPONSE_COST_ROWS, Request, SlowJsonOrPng
from service.http.uploads import FILE_FIELD, read_pictures
from service.pipeline import Encoded, check_label
from service.views.schemas import (
    CapsuleAnswer,
    DataUrl,
    FitReport,
    Number,
    TargetQuery,
    Vector,
    answer_fields,
)
from service.views.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FRAME_MS, _SIDE_PX = 100, 168
"""The animation's time of one frame, and the least side of its images."""
_SHOWN = 13
"""The drawing shows at most this many frames, evenly spaced."""


def animate(frames: Floats) -> str:
    """Animate frames (S, C, H, W) there and back, as a data URL of a lossless WebP."""
    scale = -(-_SIDE_PX // max(frames.shape[2:]))
    enlarged = [enlarge(frame, scale) for frame in frames]
    first, *others = enlarged + enlarged[-2:0:-1]
    file = io.BytesIO()
    first.save(
        file,
        "WEBP",
        save_all=True,
        append_images=others,
        duration=_FRAME_MS,
        loop=0,
        lossless=True,
    )
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


Animation = Annotated[
    str,
    BeforeValidator(animate),
    Field(description="The frames there and back: an animated WebP as data:image/webp;base64,…"),
]


class MorphQuery(TargetQuery):
    """The parameters of `/morph`."""

    steps: int = Field(9, ge=2, le=MAX_STEPS, description="Frames, both ends included.")


class MorphAnswer(CapsuleAnswer):
    """Frames between the poses of two images. `length` and `fit` are of the first image."""

    second_length: Number = Field(description="Presence of the class in the second image.")
    second_fit: FitReport
    angle_deg: Number = Field(description="Between the two poses.")
    lengths: Vector = Field(description="(steps,), presence of the class in each frame, encoded.")
    labels: list[int] = Field(description="The most present class of each frame.")
    frames: list[DataUrl]
    animation: Animation


async def morph(request: Request, query: MorphQuery) -> SlowJsonOrPng[MorphAnswer]:
    """Draw what lies between the poses of two images of one class.

    The direction of the pose goes along the great circle, its length linearly. Each frame is
    encoded again: where the presence falls, the decoder draws what the encoder does not take for
    the class. No image is known to lie on the way.
    """
    manifest = request.pipeline.manifest(query.model, needs="decode")
    check_label(manifest, query.target)
    uploads = await read_pictures(request, max_pictures=2)
    if len(uploads) != 2:
        raise InvalidParameter("send two images of one class", parameter=FILE_FIELD)
    request.pipeline.admit(2 + 2 * query.steps + RESPONSE_COST_ROWS)
    read = await request.pipeline.encode_uploads(uploads, manifest, query.spec(manifest))
    first, second = (unwrap(result) for result in read)
    label = _shared_label(manifest, first, second, query.target)
    start, end = first.capsule(label), second.capsule(label)
    poses = interpolate(start.pose, end.pose, query.steps)
    frames = await request.pipeline.decode(manifest, poses, label)
    presence, _ = await request.pipeline.encode_all(manifest, list(frames))
    lengths = presence[:, label]
    fields = answer_fields(
        manifest,
        start,
        second_length=end.presence,
        second_fit=end.prepared,
        angle_deg=angles_deg(start.pose[None], end.pose)[0],
        lengths=lengths,
        labels=presence.argmax(axis=1).tolist(),
        frames=list(frames),
        animation=frames,
    )
    ends = start.prepared.image, end.prepared.image
    title = f"{manifest.presence} of {manifest.class_names[label]} in each frame, encoded again"
    draw = partial(draw_morph, ends, frames, lengths, title=title)
    return SlowJsonOrPng(partial(MorphAnswer, **fields), manifest, draw, large=True)


def _shared_label(manifest: Manifest, first: Encoded, second: Encoded, target: int | None) -> int:
    """Choose the class whose poses are compared: the target, or the most present of both images.

    Raises:
        InvalidParameter: the images show different classes.
    """
    if target is not None:
        return target
    labels = [image.capsule().label for image in (first, second)]
    if labels[0] != labels[1]:
        names = " and ".join(repr(manifest.class_names[label]) for label in labels)
        raise InvalidParameter(
            f"the images show {names}; send two of one class, or name one with target",
            parameter="target",
        )
    return labels[0]


def draw_morph(
    ends: tuple[Floats, Floats], frames: Floats, lengths: Floats, *, title: str
) -> bytes:
    """Draw both images with the frames between, and the presence below, and return a PNG.

    Args:
        ends: both images (C, H, W).
        frames: (S, C, H, W).
        lengths: (S,).
        title: what the curve shows.
    """
    count = len(frames)
    shown = np.unique(np.linspace(0, count - 1, min(count, _SHOWN)).round().astype(int))
    images = [ends[0], *frames[shown], ends[1]]
    titles = ["first", *(str(step + 1) for step in shown), "second"]

    def fill(figure: Figure) -> None:
        figure.set_layout_engine("constrained")
        strip, curve = figure.subfigures(2, 1, squeeze=False, height_ratios=(100, 150))[:, 0]
        panels = strip.subplots(1, len(images), squeeze=False)[0]
        for axes, image, name in zip(panels, images, titles, strict=True):
            axes.imshow(enlarge(image, 1).convert("RGB"), interpolation="nearest")
            axes.set(xticks=[], yticks=[], xlabel=name)
        axes = curve.subplots()
        axes.plot(np.arange(1, count + 1), lengths, marker=".")
        axes.set(ylim=(0, 1.02), xlabel="frame")
        axes.set_title(title, loc="left", fontsize="medium")
        axes.grid(alpha=0.4)

    return draw_figure(fill, width_px=900, height_px=280)


VIEW = View(
    path="/morph",
    handler=morph,
    needs="decode",
    max_cost=2 + 2 * MAX_STEPS + RESPONSE_COST_ROWS,
    images=(2, 2),
)
