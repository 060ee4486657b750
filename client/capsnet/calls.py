"""A call is one request: what it sends, and how its answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from PIL import Image

from capsnet.answers import from_json, parse_json, read_png
from capsnet.errors import InvalidAnswer
from capsnet.images import ImageLike

T = TypeVar("T")
Failed = TypeVar("Failed")
JSON, PNG = "application/json", "image/png"


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and the function that reads its answer."""

    name: str
    """Of the client's method."""
    verb: str
    path: str
    read: Callable[[bytes], T]
    images: Sequence[ImageLike] = field(default=(), repr=False)
    """A body of image files."""
    json: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The parameters of a body of JSON."""
    query: Mapping[str, Any] = field(default_factory=dict)
    accept: str = JSON
    timeout_s: float | None = None

    def with_images(self, images: Sequence[ImageLike]) -> Call[T]:
        """The same call with other images."""
        return replace(self, images=images)

    def drawn(self, scale: int | None) -> Call[Image.Image]:
        """The same call, answered with a picture."""
        query = self.query if scale is None else {**self.query, "scale": scale}
        return replace(self, read=read_png, query=query, accept=PNG)  # type: ignore[arg-type, return-value]


def read_answer(kind: type[T]) -> Callable[[bytes], T]:
    """Return the function that reads an answer of this kind."""
    if kind is Image.Image:
        return read_png  # type: ignore[return-value]  # T is an image
    return lambda content: from_json(kind, parse_json(content))


def read_outcomes(
    member: str, kind: type[T], failed: type[Failed]
) -> Callable[[bytes], list[T | Failed]]:
    """Return the function that reads an outcome for each image.

    Args:
        member: the list of outcomes. The other members of the answer are added to each outcome.
        kind: of an outcome.
        failed: of an outcome that has a problem.
    """

    def read(content: bytes) -> list[T | Failed]:
        answer = parse_json(content)
        try:
            shared = {name: value for name, value in answer.items() if name != member}
            outcomes = [{**shared, **outcome} for outcome in answer[member]]
        except (AttributeError, KeyError, TypeError) as error:
            raise InvalidAnswer(f"these are no {member} of a CapsNet service") from error
        return [
            from_json(failed if "problem" in outcome else kind, outcome) for outcome in outcomes
        ]

    return read
