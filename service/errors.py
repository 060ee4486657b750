"""Every way a request can fail. `service.http.problems` answers with them (RFC 9457)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

Error = TypeVar("Error", bound=BaseException)
T = TypeVar("T")


class Problem(Exception):
    """A failure with its HTTP status; each subclass is a stable `type`.

    Args:
        detail: what is wrong with this request, for its sender.
        parameter: name of the parameter at fault.
        retry_after_s: when trying again may help, in seconds.
        headers: of the answer.
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


def unwrap(outcome: T | Exception) -> T:
    """Return a result; raise it if it is an exception."""
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def release(error: Error) -> Error:
    """Drop an error's traceback and causes, whose frames would keep uploads in memory.

    Where a frame holds the error, only the garbage collector would free both, much later.
    """
    link: BaseException | None = error
    while link is not None:
        before = link.__cause__ or link.__context__
        link.__traceback__ = link.__cause__ = link.__context__ = None
        link = before
    return error


class MalformedRequest(Problem, status=400, slug="malformed-request", title="Malformed request"):
    """The body is not what its content type says, or lacks the image."""


class UnknownHost(Problem, status=400, slug="unknown-host", title="Unknown host"):
    """The `Host` is none of `CAPSNET_ALLOWED_HOSTS`: a web page may have rebound its name."""


class Unauthorized(Problem, status=401, slug="unauthorized", title="API key required"):
    """No API key, or one that the service does not know (RFC 9110, section 11.6.1)."""

    headers: Mapping[str, str] = {"WWW-Authenticate": 'Bearer realm="capsnet-service"'}


class Forbidden(Problem, status=403, slug="forbidden", title="Admin key required"):
    """An API key where an admin key is needed."""


class CrossSite(Problem, status=403, slug="cross-site", title="Cross-site request"):
    """A web page of another site asks, and `CAPSNET_CORS_ORIGINS` does not allow it."""


class UnknownModel(Problem, status=404, slug="unknown-model", title="Model not found"):
    """No model of that name is loaded."""


class NotFound(Problem, status=404, slug="not-found", title="Not found"):
    """The path is none of the API's."""


class MethodNotAllowed(Problem, status=405, slug="method-not-allowed", title="Method not allowed"):
    """A route, but not with this method."""


class NotAcceptable(Problem, status=406, slug="not-acceptable", title="Not acceptable"):
    """The answer does not exist in any of the media types that were asked for."""


class UploadTimeout(Problem, status=408, slug="upload-timeout", title="Upload timed out"):
    """The body did not arrive in time."""

    headers: Mapping[str, str] = {"Connection": "close"}


class BundleRefused(Problem, status=409, slug="bundle-refused", title="Bundle cannot be loaded"):
    """A bundle could not be loaded. The bundles that were loaded before are still served."""


class NotOffered(Problem, status=409, slug="not-offered", title="Not supported by this model"):
    """The model does not support this operation.

    Its entry in `GET /models` has those it supports.
    """


class TooLarge(Problem, status=413, slug="too-large", title="Request too large"):
    """The body, an image or their number is over a limit."""


class UnsupportedFormat(Problem, status=415, slug="unsupported-format", title="Unsupported format"):
    """The file's image format or the body's content type is not supported."""


class UnreadablePicture(Problem, status=422, slug="unreadable-picture", title="Unreadable image"):
    """The image is truncated or corrupt."""


class InvalidParameter(Problem, status=422, slug="invalid-parameter", title="Invalid parameter"):
    """A parameter is missing, unknown, of the wrong type or out of range."""


class Busy(Problem, status=429, slug="busy", title="Queue full"):
    """More work waits than the service takes in; try again after `Retry-After` seconds."""


class RateLimited(Problem, status=429, slug="rate-limited", title="Rate limit exceeded"):
    """A key, or an address, asks for more rows a second than it may."""


class Unavailable(Problem, status=503, slug="unavailable", title="Service unavailable"):
    """The service is starting or draining, or has failed; another instance may answer."""


class TooLate(Problem, status=504, slug="too-late", title="Deadline exceeded"):
    """The answer was not ready within the request's time."""
