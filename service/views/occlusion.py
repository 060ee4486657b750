"""`POST /occlusion`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from model.bundle import Manifest
from model.canvas import enlarge
from model.interpret.occlusion import (
    MAX_PATCHES,
    Occlusion,
    find_background,
    is_altered,
    plan_occlusion,
)
from model.preprocess import Floats, Prepared
from service.drawing import draw_figure
from service.errors import InvalidParameter, UnknownModel, unwrap
from service.http.route import RESPONSE_COST_ROWS, Request, SlowJsonOrPng
from service.http.uploads import read_picture
from service.pipeline import Encoded, check_label
from service.views.schemas import CapsuleAnswer, Index, Matrix, Number, TargetQuery, answer_fields
from service.views.view import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SIDE = 64
"""The longest side of a patch, in pixels."""
_FALLS, _RISES = "#d65400", "#0969da"
_STROKE = 0.45
"""The brightness of the image under the map."""
_PANEL_PX = 320


class OcclusionQuery(TargetQuery):
    """The parameters of `/occlusion`."""

    patch: int | None = Field(
        None,
        ge=1,
        le=MAX_SIDE,
        description="Side of the patch, pixels of the network's image; by default a fifth of its "
        "shorter side.",
    )
    stride: int | None = Field(
        None,
        ge=1,
        le=MAX_SIDE,
        description="Pixels from place to place, at most `patch`; by default a third of it. There "
        f"are at most {MAX_PATCHES} places.",
    )
    dim: Index | None = Field(
        None, description="The pose dimension that is watched, below D; by default the presence."
    )

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


class OcclusionAnswer(CapsuleAnswer):
    """The change of presence and pose as a patch of ground hides each part of the image."""

    patch: int = Field(description="Side of the patch, pixels.")
    stride: int = Field(description="Pixels from place to place.")
    dim: int | None = Field(description="The pose dimension that was watched; null: presence.")
    value: Number = Field(description="Of what was watched, without the patch.")
    map: Matrix = Field(
        description="(H, W): how much the value changes where the patch covers a pixel, the mean "
        "over its places; negative where it falls."
    )
    lowest: Number = Field(description="The value at the place where it falls most.")
    highest: Number = Field(description="The value at the place where it rises most.")
    labels: list[list[int]] = Field(
        description="(rows, columns) of places: the most present class with the patch there."
    )


async def occlusion(request: Request, query: OcclusionQuery) -> SlowJsonOrPng[OcclusionAnswer]:
    """Hide the image patch by patch and encode each.

    The ground is black where strokes are light, and the mean colour of a photograph. A patch makes
    edges that no training image had, and ink that is seen twice may be hidden without a change:
    the map shows what this network loses, not what the class is made of.
    """
    manifest = request.pipeline.manifest(query.model)
    check_label(manifest, query.target)
    plan = query.plan(manifest)
    upload = await read_picture(request)
    request.pipeline.admit(1 + plan.shape[0] * plan.shape[1] + RESPONSE_COST_ROWS)
    prepared = unwrap((await request.pipeline.prepare([upload], query.spec(manifest)))[0])
    images = await asyncio.to_thread(_hide, manifest, plan, prepared.image)
    altered = is_altered(prepared.image, images)
    encoding = await request.pipeline.encode_all(manifest, [prepared.image, *images[altered]])
    capsule = Encoded(prepared, encoding.presence[0], encoding.poses[0]).capsule(query.target)
    # A patch that hides nothing changes nothing: its place takes the row of the image itself.
    rows = np.where(altered, altered.cumsum(), 0)
    watched = encoding.presence[rows] if query.dim is None else encoding.poses[rows, :, query.dim]
    values, value = watched[:, capsule.label], capsule.presence
    if query.dim is not None:
        value = float(capsule.pose[query.dim])
    change = plan.on_pixels(values - np.float32(value))
    fields = answer_fields(
        manifest,
        capsule,
        patch=plan.patch,
        stride=plan.stride,
        dim=query.dim,
        value=value,
        map=change,
        lowest=values.min(),
        highest=values.max(),
        labels=encoding.presence[rows].argmax(axis=1).reshape(plan.shape).tolist(),
    )
    what = manifest.presence if query.dim is None else f"dimension {query.dim}"
    title = f"{what} of {manifest.class_names[capsule.label]}: {value:.2f}"
    draw = partial(draw_occlusion, prepared, plan.patch, change, title=title)
    return SlowJsonOrPng(partial(OcclusionAnswer, **fields), manifest, draw, large=True)


def _hide(manifest: Manifest, plan: Occlusion, image: Floats) -> Floats:
    """Hide each part of the image (C, H, W) in turn, (M, C, H, W)."""
    return plan.images(image, find_background(image, strokes=manifest.preprocess != "crop"))


def draw_occlusion(prepared: Prepared, patch: int, change: Floats, *, title: str) -> bytes:
    """The image with the patch in its corner, and the map over it, as a PNG.

    Args:
        prepared: the image.
        patch: side of the patch, in pixels.
        change: (H, W); orange where it is negative, blue where it is positive.
        title: what was watched, and its value.
    """
    dark = prepared.image if prepared.polarity else 1 - prepared.image
    largest = float(np.abs(change).max()) or 1.0

    def fill(figure: Figure) -> None:
        from matplotlib.colors import ListedColormap  # noqa: PLC0415  matplotlib is slow
        from matplotlib.patches import Rectangle  # noqa: PLC0415

        figure.set_layout_engine("constrained")
        left, right = figure.subplots(1, 2)
        left.imshow(enlarge(prepared.image, 1).convert("RGB"), interpolation="nearest")
        left.add_patch(Rectangle((-0.5, -0.5), patch, patch, fill=False, edgecolor=_RISES))
        left.set_title(title, loc="left", fontsize=9)
        right.imshow(enlarge(1 - _STROKE * dark, 1).convert("RGB"), interpolation="nearest")
        colours, shares = ListedColormap([_FALLS, _RISES]), np.abs(change) / largest
        right.imshow(change > 0, cmap=colours, vmin=0, vmax=1, alpha=0.9 * shares)
        ends = f"orange: it falls, to {change.min():+.2f}; blue: it rises, to {change.max():+.2f}"
        right.set_title(
            f"mean change where the patch hides a pixel\n{ends}", loc="left", fontsize=9
        )
        for axes in (left, right):
            axes.set(xticks=[], yticks=[])

    return draw_figure(fill, width_px=2 * _PANEL_PX, height_px=_PANEL_PX + 50)


VIEW = View(
    path="/occlusion",
    handler=occlusion,
    max_cost=1 + MAX_PATCHES + RESPONSE_COST_ROWS,
    problems=(UnknownModel,),
)
