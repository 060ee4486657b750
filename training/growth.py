"""Fit a recipe to the size of its pictures: the stem grows, and lengths in pixels grow with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from model.capsnet.decoder import decoder_channels_for
from model.capsnet.network import NetworkConfig
from model.capsnet.stem import Conv, Pretrained, StemLayer, Whiten
from training.recipes import Recipe

MAX_PX = 224
"""The largest size that `--size` accepts."""
_ROOM = 1.25
"""A stem takes pictures of so many times the size it was designed for, before it grows."""
_CHANNELS = 32
_WIDEST = (64,)
"""The channels of the coarse grid where up-convolutions replace fully connected layers."""
_SHARP_PX = 128
"""Images with more pixels along the longer side are drawn at half their size and then doubled."""
_DRAWN_PX, _FEW = 64, 8
"""Stages that draw more pixels along the longer side have so few channels."""
_WHOLE_PX, _MIN_SHARE = 96, 0.25
"""Of images with more pixels along the longer side, a smaller share of each batch is reconstructed,
though at least this one, unless the recipe says less."""
_LENGTHS_PX = ("shift_px", "cutout_px")


def fit_size(recipe: Recipe, sizes: NetworkConfig) -> Recipe:
    """Fit the recipe to images of another size, number of channels and number of classes.

    The stem grows until its later layers see about as many cells as they were designed for
    (`grow_stem`), so that votes and the time of a step stay within bounds. A decoder
    of up-convolutions gets the stages that the size needs; a fully connected one, whose weights
    grow with the pixels, becomes one. A smaller share of large images is reconstructed. Shifts
    and what is cut out stay the same share of an image.

    Raises:
        ValueError: the network's layers do not fit such images.
    """
    designed = max(recipe.network.height, recipe.network.width)
    longest = max(sizes.height, sizes.width)
    names = ("channels", "height", "width", "num_classes")
    own: dict[str, Any] = {name: getattr(sizes, name) for name in names}
    if stem := getattr(recipe.network, "stem", None):
        own["stem"] = grow_stem(stem, (sizes.height, sizes.width), designed=designed)
    if recipe.network.decoder_channels or longest > _ROOM * designed:
        widest = (recipe.network.decoder_channels or _WIDEST)[0]
        doublings = int(longest > _SHARP_PX)
        drawn = (math.ceil(side / 2**doublings) for side in (sizes.height, sizes.width))
        own["decoder_channels"] = _decoder_channels(*drawn, widest=widest)
        own["decoder_doublings"] = doublings
        own["decoder_hidden"] = recipe.network.decoder_hidden[:1]
    share = max(_MIN_SHARE, recipe.reconstruction_share * min(1, (_WHOLE_PX / longest) ** 2))
    lengths = {name: round(getattr(recipe, name) * longest / designed) for name in _LENGTHS_PX}
    elastic_px = recipe.elastic_px * longest / designed
    return replace(
        recipe,
        network=replace(recipe.network, **own),
        reconstruction_share=min(recipe.reconstruction_share, round(share, 2)),
        elastic_px=elastic_px,
        **lengths,
    )


def _decoder_channels(height: int, width: int, *, widest: int) -> tuple[int, ...]:
    """Channels as usual, and few in the stages that draw more than _DRAWN_PX pixels.

    The time of a stage grows with its pixels, so that the last ones take the most.
    """
    channels = decoder_channels_for(height, width, widest=widest)
    longest, last = max(height, width), len(channels) - 1
    return tuple(
        min(count, _FEW) if longest / 2 ** (last - stage) > _DRAWN_PX else count
        for stage, count in enumerate(channels)
    )


def grow_stem(
    stem: Sequence[StemLayer], size: tuple[int, int], *, designed: int
) -> tuple[StemLayer, ...]:
    """Add layers that halve an image of this height and width (pixels), until the stem fits it.

    The stem was designed for squares of `designed` pixels and fits squares of 5/8 to 5/4 of that
    side. An oblong image is halved until its area fits, as long as its shorter side does.

    New layers come first, where channels are few; whitening stays before them. A pretrained network
    has its own.
    """
    if isinstance(stem[0], Pretrained):
        return tuple(stem)
    shorter, longer, halvings = min(size), max(size), 0
    most, least = _ROOM * designed, _ROOM * designed / 2
    while shorter * longer > most**2 and (shorter + 1) // 2 > least:
        shorter, longer, halvings = (shorter + 1) // 2, (longer + 1) // 2, halvings + 1
    first = 1 if isinstance(stem[0], Whiten) else 0
    return (*stem[:first], *[Conv(_CHANNELS, 3, 2, padding=1)] * halvings, *stem[first:])
