"""Interpolate between the poses of two images of one class.

The direction of a capsule says how its entity looks, its length whether it is there. So the
direction goes along the great circle from one to the other (slerp; Shoemake 1985, "Animating
Rotation with Quaternion Curves"), at constant speed, and the length changes linearly.
"""

from __future__ import annotations

import base64
import io
from typing import Annotated

import numpy as np
from pydantic import Field, PlainSerializer

from model.bundle import Manifest
from model.canvas import enlarge
from model.errors import InvalidParameter, unwrap
from model.preprocess import Floats, Prepared
from model.views.answers import (
    CapsuleAnswer,
    DataUrl,
    FitReport,
    Inner,
    Number,
    Vector,
    answer_fields,
)
from model.views.equivariance import angles_deg
from model.views.figure import name_chart, new_figure, render, show_strip, space_evenly
from model.views.net import Encoded, Net, encode_all
from model.views.view import TargetQuery, View

MAX_STEPS = 64
_PARALLEL = 1e-6
"""The sine of an angle below which two directions are parallel or opposite."""
_FRAME_MS, _SIDE_PX = 100, 168
"""The animation's time of one frame, and the least side of its images."""


def interpolate(first: Floats, second: Floats, steps: int) -> Floats:
    """Interpolate poses (steps, D) from one (D,) to the other, both included.

    Between opposite directions all great circles are equally short: the function always takes the
    same one. A pose of zeros has no direction: it takes the other one's.
    """
    start, end = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linspace(np.linalg.norm(start), np.linalg.norm(end), steps)
    if not (start.any() and end.any()):
        start = end = start if start.any() else end
    along = start / (np.linalg.norm(start) or 1)
    target = end / (np.linalg.norm(end) or 1)
    beside = target - (along @ target) * along
    sine = np.linalg.norm(beside)
    angle = np.arctan2(sine, along @ target)
    if sine < _PARALLEL:
        beside = np.eye(len(along))[np.abs(along).argmin()]
        beside = beside - (along @ beside) * along
    beside /= np.linalg.norm(beside) or 1
    angles = np.linspace(0, angle, steps)[:, None]
    directions = np.cos(angles) * along + np.sin(angles) * beside
    return np.asarray(lengths[:, None] * directions, np.float32)


def animate(frames: Floats) -> str:
    """Animate frames (S, C, H, W) there and back, as a data URL of a lossless WebP."""
    scale = -(-_SIDE_PX // max(frames.shape[2:]))
    enlarged = [enlarge(frame, scale) for frame in frames]
    first, *others = enlarged + enlarged[-2:0:-1]
    file = io.BytesIO()
    loop = {"save_all": True, "append_images": others, "duration": _FRAME_MS, "loop": 0}
    first.save(file, "WEBP", lossless=True, **loop)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


Animation = Annotated[
    Floats,
    PlainSerializer(animate, return_type=str),
    Field(description="The frames there and back: an animated WebP as data:image/webp;base64,…"),
]


class MorphQuery(TargetQuery):
    """The parameters of `morph`."""

    steps: int = Field(9, ge=2, le=MAX_STEPS, description="Number of frames, both ends included.")

    max_rows = MAX_STEPS

    def rows(self, manifest: Manifest) -> int:  # noqa: ARG002
        """Each frame is decoded, and encoded: one row for each of the two images."""
        return self.steps


class MorphAnswer(CapsuleAnswer):
    """Frames between the poses of two images. `length` and `fit` are of the first image."""

    second_length: Number = Field(description="Presence of the class in the second image.")
    second_fit: FitReport
    angle_deg: Number = Field(description="Between the two poses.")
    lengths: Vector = Field(description="(steps,), presence of the class in each frame, encoded.")
    labels: list[int] = Field(description="The most present class of each frame.")
    frames: list[DataUrl]
    animation: Animation
    second: Inner[Floats]
    """The second image, (C, H, W)."""


async def morph(net: Net, query: MorphQuery, first: Prepared, second: Prepared) -> MorphAnswer:
    """Turn the pose of one image into that of another.

    The pose turns at a constant speed, and its length changes linearly. Each frame
    is encoded again. If its presence is low, the encoder does not recognise what the decoder draws.
    Frames may be unlike all training images.
    """
    rows = map(unwrap, await net.encode([first.image, second.image]))
    images = [Encoded(picture, *row) for picture, row in zip((first, second), rows, strict=True)]
    label = _shared_label(net.manifest, images, query.target)
    start, end = (image.capsule(label) for image in images)
    frames = await net.decode(interpolate(start.pose, end.pose, query.steps), label)
    presence, _ = await encode_all(net, list(frames))
    return MorphAnswer(
        **answer_fields(net.manifest, start),
        second_length=end.presence,
        second_fit=FitReport.model_validate(second),
        angle_deg=angles_deg(start.pose[None], end.pose)[0],
        lengths=presence[:, label],
        labels=presence.argmax(axis=1).tolist(),
        frames=list(frames),
        animation=frames,
        second=second.image,
    )


def _shared_label(manifest: Manifest, images: list[Encoded], target: int | None) -> int:
    """Choose the class whose poses are compared: the target, or the most present of both images.

    Raises:
        InvalidParameter: the images show different classes.
    """
    if target is not None:
        return target
    labels = [image.capsule().label for image in images]
    if labels[0] != labels[1]:
        names = " and ".join(repr(manifest.class_names[label]) for label in labels)
        raise InvalidParameter(
            f"the images show {names}; send two of one class, or name one with target",
            parameter="target",
        )
    return labels[0]


def draw_frames(answer: MorphAnswer) -> bytes:
    """Both images with the frames between, and the presence below."""
    count = len(answer.frames)
    shown = space_evenly(count)
    images = [answer.image, *(answer.frames[step] for step in shown), answer.second]
    titles = ["first", *(str(step + 1) for step in shown), "second"]
    title = f"{answer.presence} of {answer.class_name} in each frame, encoded again"
    figure = new_figure(900, 280)
    strip, curve = figure.subfigures(2, 1, squeeze=False, height_ratios=(100, 150))[:, 0]
    show_strip(strip, images, titles)
    axes = curve.subplots()
    axes.plot(np.arange(1, count + 1), answer.lengths, marker=".")
    axes.set(ylim=(0, 1.02), xlabel="frame")
    name_chart(axes, title)
    return render(figure)


VIEW = View(
    morph,
    pictures=(2, 2),
    draw=draw_frames,
    figure=True,
    needs="decode",
)
