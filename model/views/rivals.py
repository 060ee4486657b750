"""Compare each class's reconstruction of an image: why is it not another class?"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from model.bundle import Manifest
from model.preprocess import Floats, Prepared
from model.views.answers import CapsuleAnswer, DataUrl, Number, Part, answer_fields
from model.views.figure import new_figure, render, show_strip
from model.views.net import Net, encode_picture
from model.views.view import PictureQuery, View, untrained_absent_classes

MAX_RIVALS = 64
"""An answer has at most this many classes."""
_MOST, _LEAST = 10, 2
"""By default it has so many, and so many where the decoder has not learnt to draw absent ones."""
_IN_A_ROW, _CELL_PX = 6, 150
"""The drawing's images in a row, and the side of each in pixels."""


def missed_share(images: Floats, decoded: Floats) -> Floats:
    """Compute the share of images x that reconstructions y miss: |x - y|^2 / (|x|^2 + 1), (N,).

    Args:
        images: (N, C, H, W) in [0, 1], or (1, C, H, W), the same for all.
        decoded: (N, C, H, W).
    """
    missed = np.square(images - decoded).sum(axis=(1, 2, 3))
    return np.asarray(missed / (np.square(images).sum(axis=(1, 2, 3)) + 1))


class RivalsQuery(PictureQuery):
    """The parameters of `rivals`."""

    count: int | None = Field(
        None,
        ge=1,
        le=MAX_RIVALS,
        description=f"Number of classes, the most present first. The default is {_MOST}, or "
        f"{_LEAST} if the decoder has not learnt to draw absent classes.",
    )

    max_rows = MAX_RIVALS

    def rows(self, manifest: Manifest) -> int:
        """Each class is decoded."""
        count = self.count or (_LEAST if untrained_absent_classes(manifest) else _MOST)
        return min(count, manifest.num_classes)


class Rival(Part):
    """The reconstruction of one class and its error."""

    label: int
    class_name: str
    length: Number = Field(description="Presence of the class, in [0, 1].")
    error: Number = Field(
        description="Share of the image x that its reconstruction y misses: Σ(x-y)² / (Σx² + 1)."
    )
    reconstruction: DataUrl


class RivalsAnswer(CapsuleAnswer):
    """The reconstructions of several classes, the most present class first."""

    input: DataUrl = Field(description="The image as the network saw it.")
    classes: list[Rival] = Field(description="The classes, the most present first.")
    best_drawn: int = Field(description="The label with the smallest error among these.")


async def rivals(net: Net, query: RivalsQuery, picture: Prepared) -> RivalsAnswer:
    """Decode the capsules of several classes of one image.

    If the decoder learnt to draw absent classes, a high error means that the class cannot explain
    the image. The error does not measure how close the class came to winning.
    """
    encoded = await encode_picture(net, picture)
    labels = (-encoded.presence).argsort(kind="stable")[: query.rows(net.manifest)]
    decoded = await net.decode(encoded.poses[labels], labels)
    errors = missed_share(picture.image[None], decoded)
    classes = [
        Rival(
            label=labels[row],
            class_name=net.manifest.class_names[labels[row]],
            length=encoded.presence[labels[row]],
            error=errors[row],
            reconstruction=decoded[row],
        )
        for row in np.lexsort((errors, -encoded.presence[labels]))
    ]
    return RivalsAnswer(
        **answer_fields(net.manifest, encoded.capsule()),
        input=picture.image,
        classes=classes,
        best_drawn=int(labels[errors.argmin()]),
    )


def draw_rivals(answer: RivalsAnswer) -> bytes:
    """The image, and what each class drew."""
    titles = [
        f"{rival.class_name}: {answer.presence} {rival.length:.2f}\nmisses {rival.error:.2f}"
        for rival in answer.classes
    ]
    images = [answer.input, *(rival.reconstruction for rival in answer.classes)]
    columns = min(_IN_A_ROW, len(images))
    rows = -(-len(images) // columns)
    figure = new_figure(columns * _CELL_PX, rows * (_CELL_PX + 30))
    show_strip(figure, images, ["the image\n", *titles], columns=columns)
    return render(figure)


VIEW = View(
    rivals,
    draw=draw_rivals,
    figure=True,
    needs="decode",
    notes=(untrained_absent_classes,),
)
