"""Choose the media type of an answer by the `Accept` header (RFC 9110, section 12.5.1)."""

from __future__ import annotations

import re
from functools import lru_cache

from service.errors import NotAcceptable

JSON = "application/json"
PNG = "image/png"
_QUALITY = re.compile(r"0(\.\d*)?|1(\.0*)?")
"""A malformed one counts as 0."""
_MAX_ACCEPT_CHARS = 1_000
"""A header of this many characters is read and cached. Browsers send 200."""


def choose_media_type(accept: str | None, media_types: tuple[str, ...]) -> str:
    """Choose the media type that the client prefers; the first of those it prefers equally.

    Raises:
        NotAcceptable: the client takes none of them, or says so at excessive length.
    """
    if accept and len(accept) > _MAX_ACCEPT_CHARS:
        raise NotAcceptable(f"Accept is longer than {_MAX_ACCEPT_CHARS:,} characters")
    return _choose(accept, media_types)


@lru_cache
def _choose(accept: str | None, media_types: tuple[str, ...]) -> str:
    """Choose as `choose_media_type` does.

    The result is cached: clients send few different headers.
    """
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
