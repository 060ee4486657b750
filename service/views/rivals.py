"""`POST /rivals`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from model.bundle import Manifest
from model.canvas import enlarge
from model.interpret.rivals import missed_share, rank_rivals
from model.preprocess import Floats
from service.drawing import draw_figure
from service.errors import unwrap
from service.http.route import RESPONSE_COST_ROWS, Request, SlowJsonOrPng
from service.http.uploads import read_picture
from service.views.schemas import CapsuleAnswer, DataUrl, Number, PictureQuery, answer_fields
from service.views.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 64
"""An answer has at most this many classes."""
_IN_A_ROW, _CELL_PX = 6, 150
"""The drawing's images in a row, and the side of each in pixels."""


class RivalsQuery(PictureQuery):
    """The parameters of `/rivals`."""

    count: int = Field(10, ge=1, le=MOST, description="Classes, the most present first.")


class Rival(BaseModel):
    """The reconstruction of one class and its error."""

    label: int
    class_name: str
    length: Number = Field(description="Presence of the class, in [0, 1].")
    error: Number = Field(
        description="Share of the image that its reconstruction misses: squared differences over "
        "(squared pixels + 1), summed."
    )
    reconstruction: DataUrl


class RivalsAnswer(CapsuleAnswer):
    """The reconstructions of all classes, the most present class first."""

    input: DataUrl = Field(description="The image as the network saw it.")
    classes: list[Rival]
    best_drawn: int = Field(description="Label, among these, of the smallest error.")


async def rivals(request: Request, query: RivalsQuery) -> SlowJsonOrPng[RivalsAnswer]:
    """Decode every class's own capsule of one image.

    Each from the votes of this image. The decoder has learnt poses of classes that are there: what
    it draws of a short capsule is faint, and its error says how little the class explains, not how
    near it came.
    """
    manifest = request.pipeline.manifest(query.model, needs="decode")
    count = min(query.count, manifest.num_classes)
    upload = await read_picture(request)
    request.pipeline.admit(1 + count + RESPONSE_COST_ROWS)
    spec = query.spec(manifest)
    (read,) = await request.pipeline.encode_uploads([upload], manifest, spec)
    encoded = unwrap(read)
    seen, capsule = encoded.prepared.image, encoded.capsule()
    labels = (-encoded.presence).argsort(kind="stable")[:count]
    decoded = await request.pipeline.decode(manifest, encoded.poses[labels], labels)
    errors = missed_share(seen[None], decoded)
    order = rank_rivals(encoded.presence[labels], errors)
    classes = [
        Rival(
            label=labels[row],
            class_name=manifest.class_names[labels[row]],
            length=encoded.presence[labels[row]],
            error=errors[row],
            reconstruction=decoded[row],
        )
        for row in order
    ]
    best = int(labels[errors.argmin()])
    fields = answer_fields(manifest, capsule, input=seen, classes=classes, best_drawn=best)
    draw = partial(draw_rivals, manifest, seen, decoded[order], classes)
    return SlowJsonOrPng(partial(RivalsAnswer, **fields), manifest, draw, large=True)


def draw_rivals(manifest: Manifest, image: Floats, decoded: Floats, classes: list[Rival]) -> bytes:
    """The image (C, H, W), and what each class drew (N, C, H, W), as a PNG."""
    titles = [
        f"{rival.class_name}: {manifest.presence} {rival.length:.2f}\nmisses {rival.error:.2f}"
        for rival in classes
    ]
    shown = list(zip(["the image\n", *titles], [image, *decoded], strict=True))
    columns = min(_IN_A_ROW, len(shown))
    rows = -(-len(shown) // columns)

    def fill(figure: Figure) -> None:
        figure.set_layout_engine("constrained")
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes in panels.flat:
            axes.set_axis_off()
        for axes, (title, pixels) in zip(panels.flat, shown, strict=False):
            axes.imshow(enlarge(pixels, 1).convert("RGB"), interpolation="nearest")
            axes.set_title(title, loc="left", fontsize=8)

    return draw_figure(fill, width_px=columns * _CELL_PX, height_px=rows * (_CELL_PX + 30))


VIEW = View(path="/rivals", handler=rivals, needs="decode", max_cost=1 + MOST + RESPONSE_COST_ROWS)
