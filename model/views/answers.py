"""The parts of answers: arrays that become JSON only on request."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from html import escape
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PrivateAttr
from pydantic.json_schema import SkipJsonSchema

from model.bundle import Manifest
from model.canvas import enlarge, png, showing
from model.errors import NotOffered
from model.preprocess import Floats
from model.preprocess.pixels import FoundPolarity
from model.views.net import Capsule

DECIMALS = 6
_HTML = '<img src="{}" style="min-width: 200px; image-rendering: pixelated">'
"""A drawing in a notebook. Small ones are enlarged."""
_BRIEF = 3
"""The representation of an answer shows at most this many parts of a list."""
T = TypeVar("T")
Json: TypeAlias = dict[str, Any]


def rounded(values: Any) -> Any:
    """A float32 array or scalar as Python floats, without the digits that float32 never had."""
    if isinstance(values, float | np.floating):  # most numbers; numpy takes ten times as long
        return round(float(values), DECIMALS)
    return np.asarray(values, np.float64).round(DECIMALS).tolist()


def data_url(image: Floats) -> str:
    """An image (C, H, W) in [0, 1] as a PNG data URL."""
    return _url(png(enlarge(image, 1)))


def _url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _brief_number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def is_none(value: object) -> bool:
    """Whether a field has no value. JSON leaves out fields of which this is the `exclude_if`."""
    return value is None


def _rounding(kind: Any) -> PlainSerializer:
    return PlainSerializer(rounded, return_type=kind)


Number = Annotated[float, _rounding(float)]
Vector = Annotated[Floats, _rounding(list[float])]
Matrix = Annotated[Floats, _rounding(list[list[float]])]
Maps = Annotated[Floats, _rounding(list[list[list[float]]])]
MapStack = Annotated[Floats, _rounding(list[list[list[list[float]]]])]
_Pose = Annotated[list[float], Field(description="The class capsule, D numbers.")]
Pose = Annotated[Floats, _rounding(_Pose)]
Poses = Annotated[Floats, _rounding(list[_Pose])]
_DataUrl = Annotated[
    str,
    Field(
        description="A PNG as data:image/png;base64,…",
        json_schema_extra={"contentMediaType": "image/png"},
    ),
]
DataUrl = Annotated[Floats, PlainSerializer(data_url, return_type=_DataUrl)]
Inner = Annotated[SkipJsonSchema[T], Field(exclude=True, repr=False)]
"""For the drawing alone: never in JSON."""


class Part(BaseModel):
    """A part of an answer. It can be made from any object that has attributes of the same names."""

    model_config = ConfigDict(arbitrary_types_allowed=True, from_attributes=True)

    def __repr_str__(self, join_str: str) -> str:
        """The fields, arrays by their shapes: thousands of numbers say nothing."""
        return join_str.join(f"{name}={_brief(value)}" for name, value in self.__repr_args__())


def _brief(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"array{value.shape}"
    if isinstance(value, list) and len(value) > _BRIEF:
        return f"[{_brief(value[0])}, ...: {len(value)}]"
    return f"[{', '.join(map(_brief, value))}]" if isinstance(value, list) else repr(value)


class FitReport(Part):
    """The steps that were applied to the image before the network saw it."""

    fit: Literal["none", "stretch", "crop", "digit", "pair"]
    polarity: FoundPolarity | None = Field(
        description="Polarity of the upload; null for photographs."
    )
    box: tuple[int, int, int, int] | None = Field(
        description="Left, top, right and bottom of the strokes, in pixels of the decoded image; "
        "null where they were not looked for or nothing was found."
    )


class ModelAnswer(Part):
    """The name and version of the model that answers."""

    model: str
    version: str = Field(description="Version of the weights.")
    notes: list[str] | None = Field(
        None,
        description="Sentences on what limits this answer; left out if there are none.",
        exclude_if=is_none,
    )
    _draw: Callable[[Any, int | None], bytes] | None = PrivateAttr(None)
    _shown: tuple[int, ...] = PrivateAttr(())

    def show(
        self, channels: Sequence[int], *, draw: Callable[[Any, int | None], bytes] | None = None
    ) -> None:
        """Set how the answer is shown.

        Args:
            channels: that are shown of images without 1 or 3 channels.
            draw: draws this answer on a scale, or on that of its query. It pickles.
        """
        self._shown, self._draw = tuple(channels), draw

    def model_dump(self, *args: Any, **kwargs: Any) -> Json:
        """The answer as a dictionary: see pydantic."""
        with showing(self._shown):
            return super().model_dump(*args, **kwargs)

    def model_dump_json(self, *args: Any, **kwargs: Any) -> str:
        """The answer as JSON: see pydantic."""
        with showing(self._shown):
            return super().model_dump_json(*args, **kwargs)

    def png(self, scale: int | None = None) -> bytes:
        """The drawing of the answer, a PNG file.

        Args:
            scale: each pixel of an image becomes scale x scale; by default as the view draws.

        Raises:
            NotOffered: there is no drawing of such an answer.
            InvalidParameter: the scale is out of range, or the answer cannot be drawn.
        """
        if self._draw is None:
            raise NotOffered(f"there is no drawing of a {type(self).__name__}")
        with showing(self._shown):
            return self._draw(self, scale)

    def dict(self) -> Json:  # type: ignore[override]
        """The JSON of the answer over HTTP: arrays are lists, images are PNG data URLs."""
        return self.model_dump(mode="json")

    def _repr_html_(self) -> str:
        """The answer's words and numbers as a table above its drawing, for notebooks."""
        cells = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(_brief_number(value))}</td></tr>"
            for name, value in self
            if isinstance(value, str | int | float) and not type(self).model_fields[name].exclude
        )
        return f"<table>{cells}</table>" + (_HTML.format(_url(self.png())) if self._draw else "")


class CapsuleAnswer(ModelAnswer):
    """The class that the answer is about, and its presence."""

    label: int
    class_name: str
    length: Number = Field(description="Confidence that the class is present, in [0, 1].")
    fit: FitReport
    image: Inner[Floats]
    """The image (C, H, W) as the network saw it."""
    presence: Inner[str]
    """What the network calls `length`."""


def answer_fields(manifest: Manifest, capsule: Capsule | None = None) -> Json:
    """Return the fields of a ModelAnswer or, with a capsule, of a CapsuleAnswer."""
    fields: Json = {"model": manifest.name, "version": manifest.version}
    if capsule is None:
        return fields
    name = manifest.class_names[capsule.label]
    about_class = {"label": capsule.label, "class_name": name, "length": capsule.presence}
    drawn = {"image": capsule.prepared.image, "presence": manifest.presence}
    return {**fields, **about_class, **drawn, "fit": capsule.prepared}
