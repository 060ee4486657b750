"""Choices of ours, measured on held-out training images: sizes of a network, parts of a recipe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from training.table.row import Row, Section, make_row

_STRIDED = {"conv_stride": 2, "primary_kernel": 5, "primary_stride": 1}
"""As many capsules as before, and each sees as much, by every other pixel."""
_SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "32x4": ("32 channels, 4 types", {"conv_channels": 32, "primary_types": 4}),
    "32x8": ("32 channels, 8 types", {"conv_channels": 32}),
    "64x8-4d": ("64 channels, 8 types of 4 dimensions", {"primary_dim": 4}),
    "64x16": ("64 channels, 16 types", {"primary_types": 16}),
    "128x8": ("128 channels, 8 types", {"conv_channels": 128}),
    "64x8-strided": ("64 channels, 8 types, strided before 5x5 kernels", _STRIDED),
    "128x8-strided": (
        "128 channels, 8 types, strided before 5x5 kernels",
        {"conv_channels": 128, **_STRIDED},
    ),
}
"""Titles and changes to the compact network of 64 channels and 8 types of 8 dimensions."""
_DECAY: tuple[str, dict[str, Any]] = (
    "the paper's decay in place of the cosine",
    {"schedule": "exponential"},
)
_PARTS: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "mnist": {
        "paper-decay": _DECAY,
        "no-warmup": ("no warm-up", {"warmup_steps": 0}),
        "averaged": ("weights averaged (0.999)", {"average_decay": 0.999}),
        "no-shift": ("no shifts", {"shift_px": 0}),
    },
    "fashion-mnist": {
        "paper-decay": _DECAY,
        "not-averaged": ("weights not averaged", {"average_decay": 0.0}),
        "no-flip": ("not mirrored", {"flip": False}),
        "no-shift": ("no shifts", {"shift_px": 0}),
    },
}
"""Titles and changes, one at a time, to the recipes of the compact networks."""
_CHANCE = {"mnist": "0.5 points", "fashion-mnist": "1.5 points"}
"""Two standard deviations of the difference of two such errors, were they independent."""
_ERROR = {"plain": "error on held-out training images, %"}


def choice_rows() -> Iterator[Row]:
    """Each preset as it is, other sizes of the first one's network, and each recipe changed."""
    for preset, parts in _PARTS.items():
        own = make_row(f"held-out-{preset}", "compact", f"`{preset}-compact`", preset)
        own = replace(own, split="validation")
        yield own
        if preset == "mnist":
            for name, (title, changes) in _SIZES.items():
                network = replace(own.recipe.network, **changes)
                yield _changed(own, name, title, network=network)
        for name, (title, changes) in parts.items():
            yield _changed(own, name, title, **changes)


def _changed(row: Row, name: str, title: str, **changes: Any) -> Row:
    recipe = replace(row.recipe, **changes)
    return replace(row, stem=f"{row.stem}-{name}", title=title, recipe=recipe)


def _stems(preset: str, names: dict[str, Any]) -> tuple[str, ...]:
    own = f"held-out-{preset}"
    return (own, *(f"{own}-{name}" for name in names))


CHOICE_SECTIONS = (
    Section(
        "Sizes of the compact network",
        "The preset `mnist-compact` has 64 channels and 8 types of 8 dimensions; what ships under "
        "that name is the 64 channels strided before 5x5 kernels, trained for 30 epochs "
        "(`mnist-compact-strided-distorted`). Parameters, megabytes as "
        "exported and images per second are those of the encoder, on one CPU thread, in turn with "
        "that of `mnist` in one run of `python -m benchmarks.sizes`; the ratios are to it. Of "
        "5,000 held-out digits one is 0.02 points: errors of one seed that lie within "
        f"{_CHANCE['mnist']} of each other do not tell which is better.",
        _stems("mnist", _SIZES),
        _ERROR,
        picture="sizes.png",
        encoders=True,
    ),
    *(
        Section(
            f"Parts of the recipe of `{preset}-compact`",
            "One change at a time, on 5,000 held-out training images. Errors of one seed that lie "
            f"within {_CHANCE[preset]} of each other do not tell which is better. In so short a "
            "training the paper's rate stays all but constant, so its row says what any fall of "
            "the rate is worth.",
            _stems(preset, parts),
            _ERROR,
        )
        for preset, parts in _PARTS.items()
    ),
)
