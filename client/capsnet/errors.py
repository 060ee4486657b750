"""What a call can raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ABOUT_IMAGES = frozenset(
    f"urn:capsnet:problem:{slug}"
    for slug in ("malformed-request", "too-large", "unreadable-picture", "unsupported-format")
)
"""Types of problems that stand in place of the answer for one of several images."""


_MAX_TEXT = 2_000
"""Longer texts of a problem are cut."""


class CapsNetError(Exception):
    """Every error of a call."""


class Unreachable(CapsNetError, ConnectionError):
    """No connection to the service: nothing listens there, or the name is unknown."""


class NoLocalBundle(Unreachable):
    """The service's package is not installed here, or this is no bundle."""


class DeadlineExceeded(CapsNetError, TimeoutError):
    """The service did not answer before the deadline."""


class InvalidAnswer(CapsNetError):
    """The answer ended early, or is not what the service documents."""


class Problem(CapsNetError):
    """The service refused a request, or could not answer it (RFC 9457).

    Args:
        status: of the HTTP answer.
        type: what to branch on, such as `urn:capsnet:problem:busy`.
        title: of the type, in words.
        detail: what is wrong with this request.
        parameter: the parameter at fault, if any.
        request_id: finds the request in the service's log.
        retry_after_s: seconds until the service may have time again.
    """

    def __init__(
        self,
        status: int,
        *,
        type: str = "about:blank",  # noqa: A002  RFC 9457's name
        title: str = "",
        detail: str = "",
        parameter: str | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(status, type, detail)
        self.status = status
        self.type = type
        self.title = title
        self.detail = detail
        self.parameter = parameter
        self.request_id = request_id
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        text = ": ".join(filter(None, (self.title, self.detail))) or f"HTTP status {self.status}"
        return f"{text} (request {self.request_id})" if self.request_id else text

    @property
    def about_image(self) -> bool:
        """Whether the image is at fault: another one may be answered."""
        return self.type in _ABOUT_IMAGES or self.parameter == "fit"

    @classmethod
    def from_dict(cls, members: Mapping[str, Any], retry_after_s: float | None = None) -> Problem:
        """Make a problem from its JSON, without unknown members and members of the wrong type."""
        known = ("type", "title", "detail", "parameter", "request_id")
        given = {
            name: members[name][:_MAX_TEXT] for name in known if isinstance(members.get(name), str)
        }
        return cls(int(members["status"]), retry_after_s=retry_after_s, **given)

    def to_dict(self) -> dict[str, Any]:
        """Its JSON, as the service sends it."""
        members = {
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "parameter": self.parameter,
            "request_id": self.request_id,
        }
        return {name: value for name, value in members.items() if value is not None}
