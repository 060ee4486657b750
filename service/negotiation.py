"""Which of its media types an answer takes, from the `Accept` header (RFC 9110, section 12.5.1).

And what all drawn answers have in common.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from fastapi import Request, Response

from service.problems import NotAcceptable

JSON = "application/json"
PNG = "image/png"
_QUALITY = re.compile(r"0(\.\d*)?|1(\.0*)?")
"""A malformed one counts as 0."""


def choose_media_type(accept: str | None, offers: Sequence[str]) -> str:
    """The offer that the client likes best; the first of those it likes equally.

    Args:
        accept: the header's value; None or empty takes anything.
        offers: media types, the default first.

    Raises:
        NotAcceptable: the client takes none of them.
    """
    ranges = _parse(accept or "*/*")
    liking = {offer: _quality(offer, ranges) for offer in offers}
    best = max(offers, key=lambda offer: liking[offer])
    if liking[best] <= 0:
        raise NotAcceptable(f"this route answers with {' or '.join(offers)}, not with {accept}")
    return best


def media_type_for(request: Request, offers: Sequence[str]) -> str:
    """The offer that the sender likes best: see `choose_media_type`.

    Raises:
        NotAcceptable: it takes none of them.
    """
    return choose_media_type(", ".join(request.headers.getlist("accept")), offers)


async def drawn(drawing: Callable[[], bytes]) -> Response:
    """The PNG that is drawn, which takes tens of milliseconds: not on the event loop."""
    return Response(await asyncio.to_thread(drawing), media_type=PNG)


@lru_cache
def _parse(accept: str) -> tuple[tuple[str, float], ...]:
    """Media ranges and how much each is liked; clients send few different headers."""
    return tuple(_parse_range(part) for part in accept.split(",") if part.strip())


def _parse_range(part: str) -> tuple[str, float]:
    media_range, *parameters = (piece.strip().lower() for piece in part.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return media_range, float(value) if _QUALITY.fullmatch(value.strip()) else 0.0
    return media_range, 1.0


def _quality(offer: str, ranges: Sequence[tuple[str, float]]) -> float:
    """How much the most specific range that covers an offer likes it."""
    for pattern in (offer, f"{offer.partition('/')[0]}/*", "*/*"):
        matching = [quality for media_range, quality in ranges if media_range == pattern]
        if matching:
            return max(matching)
    return 0.0
