"""The declaration of a view, with which each module of this package ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from model.bundle.manifest import Offer
from service.errors import (
    Busy,
    MalformedRequest,
    NotOffered,
    Problem,
    TooLarge,
    UnknownModel,
    UnreadablePicture,
    UnsupportedFormat,
    UploadTimeout,
)
from service.http.openapi import image_body
from service.http.route import Handler, Route

BODY_PROBLEMS = (MalformedRequest, UploadTimeout, TooLarge, UnsupportedFormat, Busy)
"""The problems of any request body."""
IMAGE_PROBLEMS = (*BODY_PROBLEMS, UnreadablePicture)
"""The problems of a body of images."""


@dataclass(frozen=True, kw_only=True)
class View:
    """A route that looks into a network.

    Admission and the OpenAPI document, from which the client is generated, are made from these
    fields.

    Args:
        path: of the route.
        handler: answers; its docstring is summary and description, its annotations are query and
            answer: see `Route`.
        max_cost: the rows of the most expensive request; a function of the most pictures of a
            request where it depends on that.
        tag: the group in the document.
        needs: what a network must offer; the document says so, and the page hides the view from
            networks without.
        problems: what the handler raises, beside what can be wrong with its body.
        images: how many images it takes, at least and at most; None for as many as the settings
            allow.
        example: the path of an image to try it on.
        body: of the OpenAPI operation, if it takes other things than images.
        former_path: of an earlier release, which this one still answers.
    """

    path: str
    handler: Handler
    max_cost: int | Callable[[int], int]
    tag: str = "interpret"
    needs: Offer | None = None
    problems: tuple[type[Problem], ...] = (UnknownModel, NotOffered)
    images: tuple[int, int | None] = (1, 1)
    example: str = "/samples/7.png"
    body: dict[str, Any] | None = None
    former_path: str | None = None

    def max_cost_for(self, max_pictures: int) -> int:
        """Return the most rows that a request may cost if it may have so many pictures."""
        return self.max_cost(max_pictures) if callable(self.max_cost) else self.max_cost

    def routes(self, max_pictures: int, **options: Any) -> Iterator[Route]:
        """The route where a request may have so many pictures, and that of its former path."""
        least, most = self.images
        body = self.body or image_body(least=least, most=most or max_pictures, example=self.example)
        needs = {"x-needs": self.needs} if self.needs else {}
        route = partial(
            Route,
            "POST",
            handler=self.handler,
            max_cost=self.max_cost_for(max_pictures),
            problems=(*(BODY_PROBLEMS if self.body else IMAGE_PROBLEMS), *self.problems),
            openapi={**body, **needs},
            tags=[self.tag],
            **options,
        )
        yield route(path=self.path)
        if self.former_path:
            yield route(path=self.former_path, include_in_schema=False)
