"""Answers: JSON or a PNG, by the `Accept` header (RFC 9110, section 12.5.1)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeVar

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from model.bundle import Manifest
from model.views.answers import ModelAnswer
from service.errors import NotAcceptable, Unavailable
from service.http.context import Context
from service.pictures import DRAW_CPU_S
from service.pool import Crashed

Answer = TypeVar("Answer", bound=BaseModel)
Drawn = TypeVar("Drawn", bound=ModelAnswer)
JSON = "application/json"
PNG = "image/png"
MODEL_HEADER = "X-Model"
"""The header that names the model of a PNG: `name; version=...`."""
NOTES_HEADER = "X-Notes"
"""The header with the notes on the answer that a PNG draws: a JSON list of sentences, in ASCII."""
_QUALITY = re.compile(r"0(\.\d*)?|1(\.0*)?")
"""A malformed one counts as 0."""
_MAX_ACCEPT_CHARS = 1_000
"""A header of this many characters is read and cached. Browsers send 200."""


class PngResponse(Response):
    """A PNG. It is the answer of routes that have no JSON."""

    media_type = PNG


@dataclass(frozen=True)
class DeferredJson(Generic[Answer]):
    """JSON that the route serialises after the handler returns and before the deadline."""

    answer: Answer
    large: bool = field(default=False, kw_only=True)
    """Whether serialising takes long: it then runs on the slow thread."""


@dataclass(frozen=True)
class JsonOrPng(DeferredJson[Drawn]):
    """JSON or a PNG. Only the requested one is made. The notes of a PNG are in a header."""

    manifest: Manifest
    draw: Callable[[], bytes]
    """Returns the PNG's bytes; called on a thread."""


class SlowJsonOrPng(JsonOrPng[Drawn]):
    """JSON or a PNG that takes long to draw. It is drawn in a process.

    Its `draw` must pickle: a `partial` of a module's function, without the request.
    """


@lru_cache
def choose_media_type(accept: str, media_types: tuple[str, ...]) -> str:
    """Choose the media type that the client prefers; the first of those it prefers equally.

    The result is cached: clients send few different headers.

    Raises:
        NotAcceptable: the client takes none of them, or says so at excessive length.
    """
    if len(accept) > _MAX_ACCEPT_CHARS:
        raise NotAcceptable(f"Accept is longer than {_MAX_ACCEPT_CHARS:,} characters")
    ranges: dict[str, float] = {}
    for part in filter(str.strip, (accept or "*/*").lower().split(",")):
        media_range, *parameters = (piece.strip() for piece in part.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        quality = next((value.strip() for name, _, value in pairs if name.strip() == "q"), "1")
        weight = float(quality) if _QUALITY.fullmatch(quality) else 0.0
        ranges[media_range] = max(weight, ranges.get(media_range, 0.0))

    def quality_of(media_type: str) -> float:
        """Return the q-value of the most specific range that covers a type; 0 if none does."""
        patterns = (media_type, f"{media_type.partition('/')[0]}/*", "*/*")
        return next((ranges[pattern] for pattern in patterns if pattern in ranges), 0.0)

    best = max(media_types, key=quality_of)
    if not quality_of(best):
        raise NotAcceptable(
            f"this route answers with {' or '.join(media_types)}, not with {accept}"
        )
    return best


def _to_json(answer: BaseModel, headers: dict[str, str] | None = None) -> Response:
    return Response(answer.model_dump_json(), 200, headers, JSON)


async def render(answer: Any, media_type: str, context: Context) -> Response:
    """The media type that was asked for. What takes milliseconds is not done on the event loop."""
    if isinstance(answer, Response):
        return answer
    if not isinstance(answer, DeferredJson):
        return _to_json(answer) if isinstance(answer, BaseModel) else JSONResponse(answer)
    headers = {"Vary": "Accept"} if isinstance(answer, JsonOrPng) else {}
    if isinstance(answer, JsonOrPng) and media_type == PNG:
        headers[MODEL_HEADER] = f"{answer.manifest.name}; version={answer.manifest.version}"
        if answer.answer.notes:
            headers[NOTES_HEADER] = json.dumps(answer.answer.notes)
        if not isinstance(answer, SlowJsonOrPng):
            return PngResponse(await context.slow.run(answer.draw), headers=headers)
        try:
            _, drawn = await context.drawing.run(DRAW_CPU_S, answer.draw)
        except (Crashed, MemoryError) as error:
            text = (
                f"drawing took more memory or CPU time than it may ({DRAW_CPU_S:g} s), or crashed"
            )
            raise Unavailable(text, retry_after_s=1) from error
        return PngResponse(drawn, headers=headers)
    if answer.large or isinstance(answer, JsonOrPng):
        return await context.slow.run(_to_json, answer.answer, headers)
    return _to_json(answer.answer, headers)
