"""Fit uploads to images for a model, and encode images as PNG files."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from model.canvas import enlarge, png
from model.preprocess import Fit, Floats, Polarity, Prepared, PreprocessError, prepare
from service.errors import InvalidParameter, Problem, release
from service.pictures.decode import decode
from service.pictures.header import is_plain_png

if TYPE_CHECKING:  # processes that decode do not import pydantic
    from model.bundle import PreprocessRule

SAMPLES = Path(__file__).parent.parent / "samples"
"""The folder of samples: one digit of each class, 28x28 greyscale PNG, and folders of other data
sets.
"""
Upload = bytes | Problem
"""The bytes of an image file, or why this one of several could not be taken."""
_MAX_QUICK_BYTES = 4096


class ImageSpec(NamedTuple):
    """The size and the rules by which an upload is fitted: see `model.preprocess.prepare`."""

    shape: tuple[int, int, int]
    """(C, H, W)."""
    rule: PreprocessRule
    fit: Fit = "auto"
    polarity: Polarity = "auto"
    any_size: bool = False


def decode_and_fit(content: bytes, spec: ImageSpec, max_pixels: int) -> Prepared | Problem:
    """Decode a file and fit it. Return the problem if that fails."""
    try:
        picture, shrink = decode(content, max_pixels=max_pixels)
        prepared = prepare(
            picture,
            spec.shape,
            rule=spec.rule,
            fit=spec.fit,
            polarity=spec.polarity,
            any_size=spec.any_size,
        )
    except PreprocessError as error:
        return InvalidParameter(str(error), parameter="fit")
    except Problem as problem:
        return release(problem)
    if prepared.box is None:
        return prepared
    return replace(prepared, box=prepared.box.scaled(shrink, shrink))


def is_quick(content: bytes, spec: ImageSpec) -> bool:
    """Whether a file is small and needs no resizing, so that decoding takes about 0.05 ms."""
    if (
        len(content) > _MAX_QUICK_BYTES
        or spec.fit not in ("auto", "none")
        or not is_plain_png(content)
    ):
        return False
    width, height = struct.unpack_from(">II", content, 16)
    return bool((height, width) == spec.shape[1:])


def encode_png(image: Floats, *, scale: int = 1) -> bytes:
    """An image (C, H, W) in [0, 1] as a PNG, each pixel enlarged to `scale` squared."""
    return png(enlarge(image, scale))
