"""Calls: a call is a request, and how its answer is read. Each method describes one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, Generic, TypeAlias, TypeVar, cast
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image

from capsnet.answers import from_json, parse_json, read_png
from capsnet.errors import InvalidAnswer

T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Any])
Failed = TypeVar("Failed")
JSON, PNG = "application/json", "image/png"


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and the function that reads its answer."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: dict[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """As httpx takes it: `content`, `files` or `json`."""
    accept: str = JSON
    timeout_s: float | None = None

    def drawn(self, scale: int | None) -> Call[Image.Image]:
        """The same, answered with a picture."""
        query = {**self.query, **_given({"scale": scale})}
        return Call(self.method, self.path, read_png, query, self.body, PNG, self.timeout_s)


Build: TypeAlias = Callable[[Sequence[bytes]], Call[list[T]]]
"""Makes the call for the images of one request; the answer has an outcome for each image."""


def call(
    method: str,
    path: str,
    kind: type[T],
    query: Mapping[str, Any],
    body: Mapping[str, Any] | None = None,
    *,
    timeout_s: float | None = None,
) -> Call[T]:
    """A call that is answered with JSON of this kind; parameters that are None are left out."""
    read = partial(_read_json, kind)
    return Call(method, path, read, _given(query), body or {}, timeout_s=timeout_s)


def picture(
    method: str,
    path: str,
    query: Mapping[str, Any],
    body: Mapping[str, Any] | None = None,
    *,
    timeout_s: float | None = None,
) -> Call[Image.Image]:
    """A call that is answered with a picture."""
    return Call(method, path, read_png, _given(query), body or {}, PNG, timeout_s)


def outcomes(
    path: str,
    member: str,
    kinds: tuple[type[T], type[Failed]],
    query: Mapping[str, Any],
    *,
    timeout_s: float | None = None,
) -> Build[T | Failed]:
    """Makes calls whose answers list an outcome for each image.

    Args:
        path: of the route.
        member: the list. The other members of the answer are added to each outcome.
        kinds: of an outcome, and of one that has a problem.
    """
    read = partial(_read_outcomes, member, kinds)

    def build(images: Sequence[bytes]) -> Call[list[T | Failed]]:
        return Call("POST", path, read, _given(query), with_images(*images), JSON, timeout_s)

    return build


def with_images(*images: bytes) -> dict[str, Any]:
    """A body of image files."""
    if len(images) == 1:
        return {"content": images[0], "headers": {"Content-Type": "application/octet-stream"}}
    return {"files": [("file", (str(place), one)) for place, one in enumerate(images)]}


def with_poses(poses: ArrayLike, *, label: int) -> dict[str, Any]:
    """A body of one pose (D,) or several (N, D)."""
    values = np.asarray(poses, np.float64)
    name = "pose" if values.ndim == 1 else "poses"
    return {"json": {name: values.tolist(), "label": int(label)}}


def part(value: object) -> str:
    """One part of a path."""
    return quote(str(value), safe="")


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that have a value; several values as a list."""
    return {
        name: list(value) if isinstance(value, Iterable) and not isinstance(value, str) else value
        for name, value in query.items()
        if value is not None
    }


def _read_json(kind: type[T], content: bytes) -> T:
    return from_json(kind, parse_json(content))


def _read_outcomes(
    member: str, kinds: tuple[type[T], type[Failed]], content: bytes
) -> list[T | Failed]:
    answer, (kind, failed) = parse_json(content), kinds
    try:
        beside = {name: value for name, value in answer.items() if name != member}
        each = [{**beside, **one} for one in answer[member]]
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidAnswer(f"these are no {member} of a CapsNet service") from error
    return [from_json(failed if "problem" in one else kind, one) for one in each]


def former(name: str, method: M) -> M:
    """The method under the name of the last release, with a `DeprecationWarning` at each call."""
    text = f"{name} is a former name of {method.__name__}, which works for one release more"

    @wraps(method)
    def renamed(*given: Any, **options: Any) -> Any:
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return method(*given, **options)

    renamed.__deprecated__ = text  # type: ignore[attr-defined]
    return cast("M", renamed)
