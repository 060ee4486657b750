"""Fit uploads to images for a model, and encode images as PNG files."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

import numpy as np
from PIL import Image, PngImagePlugin

from model.preprocess import Fit, Polarity, Prepared, PreprocessError, prepare
from model.preprocess.header import Header, is_plain_png
from model.preprocess.prepared import Box, FoundPolarity
from model.preprocess.reader import MAX_SIDE, decode
from service.errors import (
    InvalidParameter,
    Problem,
    TooLarge,
    UnreadablePicture,
    UnsupportedFormat,
    release,
)

if TYPE_CHECKING:  # processes that decode do not import pydantic
    from model.bundle import PreprocessRule

SAMPLES = Path(__file__).parent.parent / "samples"
"""The folder of samples: one digit of each class, 28x28 greyscale PNG, and folders of other data
sets.
"""
Upload = bytes | Problem
"""The bytes of an image file, or why this one of several could not be taken."""
_MAX_QUICK_BYTES = 4096
_MAX_TEXT_BYTES = 8_000_000
"""All texts of a PNG may have this many bytes together, decompressed."""
_PROBLEMS = {
    kind.slug: kind for kind in (InvalidParameter, TooLarge, UnreadablePicture, UnsupportedFormat)
}
_FITS = get_args(get_type_hints(Prepared)["fit"])
_POLARITIES = (None, *get_args(FoundPolarity))


class ImageSpec(NamedTuple):
    """The arguments of `model.preprocess.prepare` by which an upload is fitted."""

    shape: tuple[int, int, int]
    """(C, H, W)."""
    rule: PreprocessRule
    fit: Fit = "auto"
    polarity: Polarity = "auto"
    any_size: bool = False


def decode_and_fit(
    content: bytes, header: Header | None, spec: ImageSpec, max_pixels: int
) -> Prepared | Problem:
    """Decode a file and fit it. Return the problem if that fails."""
    try:
        picture, shrink = decode(content, header, max_pixels=max_pixels)
        prepared = prepare(picture, **spec._asdict())
    except PreprocessError as error:
        return InvalidParameter(str(error), parameter="fit")
    except Problem as problem:
        return release(problem)
    if prepared.box is None:
        return prepared
    return replace(prepared, box=prepared.box.scaled(shrink, shrink))


def decode_in_process(
    content: bytes, header: Header | None, spec: ImageSpec, max_pixels: int
) -> tuple[dict[str, Any], bytes]:
    """As `decode_and_fit`, as JSON and the image's raw bytes; see `read_decoded`."""
    Image.MAX_IMAGE_PIXELS = None  # Pillow's own limit, in place of that of the settings
    PngImagePlugin.MAX_TEXT_MEMORY = _MAX_TEXT_BYTES
    result = decode_and_fit(content, header, spec, max_pixels)
    if isinstance(result, Problem):
        return {"slug": result.slug, "detail": result.detail, "parameter": result.parameter}, b""
    facts = {"fit": result.fit, "polarity": result.polarity, "box": result.box}
    return {**facts, "shape": result.image.shape}, np.ascontiguousarray(
        result.image, "<f4"
    ).tobytes()


def read_decoded(facts: Any, content: bytes, spec: ImageSpec) -> Prepared | Problem:
    """The image or problem that a process found.

    Raises:
        ValueError, TypeError, KeyError, OverflowError: it is none. The process is not trusted.
    """
    if "slug" in facts:
        parameter = facts["parameter"] and str(facts["parameter"])
        return _PROBLEMS[facts["slug"]](str(facts["detail"]), parameter=parameter)
    channels, height, width = shape = tuple(map(int, facts["shape"]))
    fits = channels == spec.shape[0] and 0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE
    if not (fits and (spec.any_size or shape == spec.shape)):
        raise ValueError(f"a process gave an image of the shape {shape}")
    if facts["fit"] not in _FITS or facts["polarity"] not in _POLARITIES:
        raise ValueError("a process gave an unknown fit")
    image = np.frombuffer(content, "<f4").reshape(shape)
    box = facts["box"] and Box(*map(int, facts["box"]))
    return Prepared(image, facts["fit"], facts["polarity"], box)


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
