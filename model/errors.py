"""Failures that a caller can mend, each with its type in problem details (RFC 9457).

`service.errors` adds the failures of a service. The client names all of them alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Problem(Exception):
    """A failure with its HTTP status; each subclass is a stable `type`.

    Args:
        detail: what is wrong with this request, for its sender.
        parameter: name of the parameter at fault.
        retry_after_s: when trying again may help, in seconds.
        headers: of an HTTP answer.
    """

    status: int = 500
    slug: str = "internal-error"
    title: str = "Internal server error"
    headers: Mapping[str, str] = {}

    def __init__(
        self,
        detail: str,
        *,
        parameter: str | None = None,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.parameter = parameter
        self.headers = headers or self.headers
        if retry_after_s is not None:
            self.headers = {**self.headers, "Retry-After": str(math.ceil(retry_after_s))}

    def __init_subclass__(cls, status: int, slug: str, title: str) -> None:
        cls.status, cls.slug, cls.title = status, slug, title

    def to_dict(self) -> dict[str, Any]:
        """Problem details; `parameter` is left out where there is none."""
        members = {"type": f"urn:capsnet:problem:{self.slug}", "title": self.title}
        details = {**members, "status": self.status, "detail": self.detail}
        return {**details, "parameter": self.parameter} if self.parameter else details


class NotOffered(Problem, status=409, slug="not-offered", title="Not supported by this model"):
    """The model does not support this operation.

    Its entry in `GET /models` has those it supports.
    """


class TooLarge(Problem, ValueError, status=413, slug="too-large", title="Request too large"):
    """The body, an image or their number is over a limit."""


class UnsupportedFormat(
    Problem, ValueError, status=415, slug="unsupported-format", title="Unsupported format"
):
    """The file's image format or the body's content type is not supported."""


class UnreadablePicture(
    Problem, ValueError, status=422, slug="unreadable-picture", title="Unreadable image"
):
    """The image is truncated or corrupt."""


class InvalidParameter(
    Problem, ValueError, status=422, slug="invalid-parameter", title="Invalid parameter"
):
    """A parameter is missing, unknown, of the wrong type or out of range."""


def unwrap(outcome: T | Exception) -> T:
    """Return a result; raise it if it is an exception."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
