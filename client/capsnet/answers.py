"""How answers are read: images are Pillow's, lists of numbers are numpy arrays."""

from __future__ import annotations

import base64
import io
import json
import warnings
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, dataclass_transform

import numpy as np
from cattrs import BaseValidationError, Converter
from numpy.typing import NDArray
from PIL import Image

from capsnet.errors import InvalidAnswer, Problem

MAX_PIXELS = 100_000_000
"""The pictures of an answer may have this many pixels together."""
_MAX_VALUES = 3_000_000
"""The JSON of an answer may have this many values, several times the most of the service."""
_MARKS = (b",", b"[", b"{")
"""Each value of JSON has one of them before it, except the first."""
Floats: TypeAlias = NDArray[np.float64]
T = TypeVar("T")


_pixels_left: ContextVar[int] = ContextVar("_pixels_left", default=MAX_PIXELS)


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=True)
class Answer:
    """What all answers have: they are frozen dataclasses."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False, kw_only=True)(cls)

    def to_dict(self) -> dict[str, Any]:
        """The answer's JSON: arrays are lists, images are PNG data URLs."""
        members: dict[str, Any] = _CONVERTER.unstructure(self)
        return members


def from_json(kind: type[T], members: Any) -> T:
    """Make an answer from its JSON, without members that this version does not know.

    Raises:
        InvalidAnswer: it lacks a member, or has one of another kind.
    """
    invalid = InvalidAnswer(f"this is no {kind.__name__} of a CapsNet service")
    if not isinstance(members, dict):
        raise invalid
    before = _pixels_left.set(MAX_PIXELS)
    try:
        return _CONVERTER.structure(members, kind)
    except (BaseValidationError, ValueError, TypeError, KeyError) as error:
        raise invalid from error
    finally:
        _pixels_left.reset(before)


def parse_json(content: bytes) -> Any:
    """Parse JSON, after its values have been counted.

    Raises:
        InvalidAnswer: it is not JSON, nested too deeply, or has too many values.
    """
    if sum(map(content.count, _MARKS)) > _MAX_VALUES:
        raise InvalidAnswer(f"the answer has more than {_MAX_VALUES:,} values")
    try:
        return json.loads(content)
    except (RecursionError, ValueError) as error:
        raise InvalidAnswer("the answer is not JSON") from error


def read_png(content: bytes, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Make an image from the bytes of its file.

    Raises:
        InvalidAnswer: it is no PNG, ends early, or has too many pixels.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # bounded below
            image = Image.open(io.BytesIO(content), formats=["PNG"])
        if image.width * image.height > max_pixels:
            raise InvalidAnswer(f"the answer's pictures have more than {MAX_PIXELS:,} pixels")
        image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InvalidAnswer("the answer is no image") from error
    return image


def _read_data_url(url: str, _: object) -> Image.Image:
    left = _pixels_left.get()
    image = read_png(base64.b64decode(url.partition(",")[2]), left)
    _pixels_left.set(left - image.width * image.height)
    return image


def _write_data_url(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _is_array(kind: Any) -> bool:
    return kind is np.ndarray or getattr(kind, "__origin__", None) is np.ndarray


def _is_image(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Image.Image)


def _converter() -> Converter:
    converter = Converter()
    converter.register_structure_hook_func(_is_array, lambda one, _: np.asarray(one, np.float64))
    converter.register_structure_hook_func(_is_image, _read_data_url)
    converter.register_structure_hook(Problem, lambda members, _: Problem.from_dict(members))
    converter.register_unstructure_hook_func(_is_array, lambda one: one.tolist())
    converter.register_unstructure_hook_func(_is_image, _write_data_url)
    converter.register_unstructure_hook(Problem, lambda problem: problem.to_dict())
    return converter


_CONVERTER = _converter()
